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
        help="A shipped model's name, a checkpoint's path, `timm:NAME`, `hf:NAME`, or"
        " `module:function`.",
        autocompletion=models,
    ),
]
Architecture = Annotated[
    str | None,
    typer.Option(
        help="The architecture of a checkpoint that tapr did not write, e.g. `resnet-50`."
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="The device to run on: `cpu`, `cuda`, `cuda:1`, `mps`; `auto` is a GPU where there is"
        " one."
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
PREPROCESSING = "Preprocessing, if the model's config does not define it"
Size = Annotated[
    str | None,
    typer.Option(
        help="The size of the images: `224`, or `3x224x224` (channels, height, width).",
        rich_help_panel=PREPROCESSING,
    ),
]
Mean = Annotated[
    str | None,
    typer.Option(
        help="The mean of each channel, e.g. `0.485,0.456,0.406`.", rich_help_panel=PREPROCESSING
    ),
]
Std = Annotated[
    str | None,
    typer.Option(
        help="The standard deviation of each channel, e.g. `0.229,0.224,0.225`.",
        rich_help_panel=PREPROCESSING,
    ),
]
Crop = Annotated[
    float | None,
    typer.Option(
        help="The share of an image's shorter side that is kept by the crop, up to 1.",
        rich_help_panel=PREPROCESSING,
    ),
]
Interpolation = Annotated[
    str | None,
    typer.Option(
        help="How images are resized: `bilinear`, `bicubic`, ...", rich_help_panel=PREPROCESSING
    ),
]


def settings_of(
    size: str | None,
    mean: str | None,
    std: str | None,
    crop: float | None = None,
    interpolation: str | None = None,
) -> dict[str, Any]:
    """What the flags say about the input of a model, in timm's words."""
    from tapr.runs.preprocess import size_of

    return {
        "input_size": size_of(size),
        "mean": numbers_of("--mean", mean),
        "std": numbers_of("--std", std),
        "crop_pct": crop,
        "interpolation": interpolation,
    }


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


def numbers_of(option: str, text: str | None) -> list[float] | float | None:
    """A number, or several separated by commas."""
    from tapr.errors import InputError

    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"expected {option} as numbers separated by commas, got {text!r}"
        ) from error
    return values[0] if len(values) == 1 else values
