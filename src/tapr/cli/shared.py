"""Arguments and options that several commands share, and how their texts are read."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tapr.cli.completing import models

Images = Annotated[
    str,
    typer.Argument(
        metavar="FOLDER",
        help="A folder of images, a text file with a path on each line, or `-` to read paths from"
        " standard input.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        help="A shipped model's name, a checkpoint's path, `timm:NAME`, or `module:function`.",
        autocompletion=models,
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        help="The architecture of a checkpoint that tapr did not write, e.g. `resnet-50`."
    ),
]
Labels = Annotated[
    Path | None,
    typer.Option(help="The names of the classes: a text file with one per line, or JSON."),
]
Chosen = Annotated[
    list[str] | None,
    typer.Option(help="An option of the method, e.g. `lr=1e-3`; may be repeated."),
]


def options_of(given: list[str]) -> dict[str, Any]:
    """The options that `name=value` texts give."""
    from tapr.errors import InputError
    from tapr.methods import value as read

    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise InputError(f"expected an option as name=value, got {pair!r}")
        options[name] = read(value)
    return options


def size_of(text: str | None) -> list[int] | None:
    """Channels, height and width, of `224` or `3x224x224`."""
    from tapr.errors import InputError

    if text is None:
        return None
    try:
        sides = [int(part) for part in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) == 1:
        return [3, sides[0], sides[0]]
    if len(sides) == 3:
        return sides
    raise InputError(f"expected a size like 224 or 3x224x224, got {text!r}")


def numbers_of(option: str, text: str | None) -> list[float] | float | None:
    """A number, or several with commas between."""
    from tapr.errors import InputError

    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"expected {option} as numbers with commas, got {text!r}") from error
    return values[0] if len(values) == 1 else values
