"""`tapr choose`: which method to use, on images without labels."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, several
from tapr.cli.shared import (
    Architecture,
    Crop,
    Device,
    Images,
    Interpolation,
    Mean,
    Model,
    Size,
    Std,
    settings_of,
)


@app.command()
def choose(
    source: Images,
    model: Model,
    architecture: Architecture = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="The methods to try, separated by commas; options are written `tent:lr=0.01`."
            " The unadapted model is always among them.  [default: seven of different kinds]",
            autocompletion=several(METHODS),
        ),
    ] = None,
    images: int = typer.Option(512, min=1, help="The number of images to try them on."),
    batch_size: int = typer.Option(64, min=1, help="The number of images in a batch."),
    shuffle: bool = typer.Option(
        False, "--shuffle", help="Shuffle the list of images; the seed decides the order."
    ),
    seed: int = typer.Option(0, help="The seed of the augmented views and of --shuffle."),
    device: Device = "auto",
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    crop: Crop = None,
    interpolation: Interpolation = None,
    as_json: bool = typer.Option(False, "--json", help="Print the choice as one JSON object."),
) -> None:
    """Try methods on a sample of unlabelled images, rank them, and print the command to use.

    No labels are needed. Where a method and the unadapted model disagree about an image, two
    augmented views of the image decide which of them is more credible. docs/health.md has
    measurements of how good this criterion is.

    Example: `tapr choose photos/ --model timm:resnet50`
    """
    from tapr import names
    from tapr.runs.choose import CANDIDATES, choose, sample

    settings = settings_of(size, mean, std, crop, interpolation)
    found, pictures = sample(source, model, architecture, images, shuffle, seed, device, settings)
    variants = CANDIDATES if candidates is None else names.pieces(candidates, ",")
    choice = choose(found, pictures, candidates=variants, batch_size=batch_size, seed=seed)
    if as_json:
        table = [{**c._asdict(), "passes": c.passes._asdict()} for c in choice.candidates]
        typer.echo(json.dumps({**choice._asdict(), "candidates": table, "sure": choice.sure}))
        return
    words = ["tapr", "adapt", source, "--model", model, "--method", choice.best.method]
    said: dict[str, object] = {
        "--architecture": architecture,
        "--size": size,
        "--mean": mean,
        "--std": std,
    }
    said |= {"--crop": crop, "--interpolation": interpolation}
    words += [str(part) for flag, value in said.items() if value for part in (flag, value)]
    typer.echo(choice)
    typer.echo(shlex.join([*words, "-o", "predictions.csv"]))
