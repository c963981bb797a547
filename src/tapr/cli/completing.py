"""The names a shell can complete, written down so that completion need not import torch.

A test holds the tables against the registries they stand for.
"""

from collections.abc import Callable, Iterable
from importlib.resources import files

Complete = Callable[[str], list[str]]

METHODS = ("norm", "pest", "source", "steady", "tent")
SYSTEMS = (
    *("norm", "pest-augmix", "pest-control", "pest-randaugment", "source", "steady", "tent"),
)
PROTOCOLS = ("continual", "each", "gradual", "mixed")
ORDERS = ("dirichlet", "listed", "shuffled", "sorted")
AUGMENTATIONS = ("augmix", "identity", "randaugment")
DATA = ("cifar10", "cifar100", "cifar100c", "cifar10c", "digits", "mnist", "usps", "visda")
CORRUPTIONS = (
    "brightness",
    "contrast",
    "defocus_blur",
    "elastic_transform",
    "fog",
    "frost",
    "gaussian_blur",
    "gaussian_noise",
    "glass_blur",
    "impulse_noise",
    "jpeg_compression",
    "motion_blur",
    "pixelate",
    "saturate",
    "shot_noise",
    "snow",
    "spatter",
    "speckle_noise",
    "zoom_blur",
)


def among(names: Iterable[str]) -> Complete:
    """Complete one of these names.

    >>> among(["fog", "frost", "snow"])("f")
    ['fog', 'frost']
    """
    known = tuple(names)

    def complete(incomplete: str) -> list[str]:
        return [name for name in known if name.startswith(incomplete)]

    return complete


def several(names: Iterable[str]) -> Complete:
    """Complete the last of several names with commas between.

    >>> several(["fog", "frost", "snow"])("snow,fr")
    ['snow,frost']
    """
    complete = among(names)

    def last(incomplete: str) -> list[str]:
        before, comma, rest = incomplete.rpartition(",")
        return [before + comma + name for name in complete(rest)]

    return last


def stems(folder: str, suffix: str) -> Complete:
    """Complete the name of a file of the package, without its suffix."""

    def found(incomplete: str) -> list[str]:
        entries = (entry.name for entry in files("tapr").joinpath(*folder.split("/")).iterdir())
        names = sorted(name.removesuffix(suffix) for name in entries if name.endswith(suffix))
        return among(names)(incomplete)

    return found


specs = stems("runs/specs", ".toml")
ablations = stems("runs/ablations", ".toml")
models = stems("models/weights", ".safetensors")
