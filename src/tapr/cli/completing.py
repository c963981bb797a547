"""The names a shell can complete; completion imports no torch."""

import tomllib
from collections.abc import Callable, Iterable
from importlib.resources import files

from tapr import names

Complete = Callable[[str], list[str]]

METHODS = tuple(names.METHODS)
AUGMENTATIONS = names.AUGMENTATIONS
DATA = tuple(names.DATA)
CORRUPTIONS = tuple(names.CORRUPTIONS)


def among(known: Iterable[str]) -> Complete:
    """Complete one of these names.

    >>> among(["fog", "frost", "snow"])("f")
    ['fog', 'frost']
    """
    listed = tuple(known)

    def complete(incomplete: str) -> list[str]:
        return [name for name in listed if name.startswith(incomplete)]

    return complete


def several(known: Iterable[str]) -> Complete:
    """Complete the last of several names separated by commas.

    >>> several(["fog", "frost", "snow"])("snow,fr")
    ['snow,frost']
    """
    complete = among(known)

    def last(incomplete: str) -> list[str]:
        before, comma, rest = incomplete.rpartition(",")
        return [before + comma + name for name in complete(rest)]

    return last


def stems(folder: str, suffix: str) -> Complete:
    """Complete the name of a file of the package, without its suffix."""

    def found(incomplete: str) -> list[str]:
        entries = (entry.name for entry in files("tapr").joinpath(*folder.split("/")).iterdir())
        stripped = sorted(name.removesuffix(suffix) for name in entries if name.endswith(suffix))
        return among(stripped)(incomplete)

    return found


def methods(incomplete: str) -> list[str]:
    """Complete the last of several methods: names, and the labels of the ready-made specs."""
    known = dict.fromkeys(names.METHODS)
    for name in specs(""):
        text = files("tapr").joinpath("runs", "specs", f"{name}.toml").read_text("utf-8")
        known |= dict.fromkeys(tomllib.loads(text)["methods"])
    return several(known)(incomplete)


specs = stems("runs/specs", ".toml")
ablations = stems("runs/ablations", ".toml")
models = stems("models/weights", ".safetensors")
