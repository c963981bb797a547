"""`tapr choose`: which method to use, on images without labels."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, several
from tapr.cli.shared import Architecture, Images, Model


@app.command()
def choose(
    source: Images,
    model: Model,
    architecture: Architecture = None,
    candidates: Annotated[
        str | None,
        typer.Option(
            help="Methods with commas between, with options as `tent:lr=0.01`; a list of ours"
            " unless said. The unadapted model is always among them.",
            autocompletion=several(METHODS),
        ),
    ] = None,
    images: int = typer.Option(512, min=1, help="Number of images to try them on, the first ones."),
    batch_size: int = typer.Option(64, min=1, help="Number of images in a batch."),
    shuffle: bool = typer.Option(
        False, "--shuffle", help="Shuffle the list of images, by the seed."
    ),
    seed: int = typer.Option(0, help="Seed of the augmented views, and of --shuffle."),
    device: str = typer.Option("cpu", help="The device to run on: `cpu`, `cuda`, `cuda:1`, `mps`."),
    as_json: bool = typer.Option(False, "--json", help="Print the choice as one JSON object."),
) -> None:
    """Try methods on a sample of unlabelled images, rank them, and print the line to use.

    The criterion is whom two views of every image believe, the method or the unadapted model; no
    labels are needed. What it is worth was measured: docs/health.md.

    Example: `tapr choose photos/ --model timm:resnet50`
    """
    from tapr import names
    from tapr.runs.choose import CANDIDATES, choose, sample

    found, pictures = sample(source, model, architecture, images, shuffle, seed, device)
    variants = CANDIDATES if candidates is None else names.pieces(candidates, ",")
    choice = choose(found, pictures, candidates=variants, batch_size=batch_size, seed=seed)
    if as_json:
        table = [{**c._asdict(), "passes": c.passes._asdict()} for c in choice.candidates]
        typer.echo(json.dumps({**choice._asdict(), "candidates": table, "sure": choice.sure}))
        return
    words = ["tapr", "adapt", source, "--model", model, "--method", choice.best.method]
    words += ["--architecture", architecture] if architecture else []
    typer.echo(choice)
    typer.echo(shlex.join([*words, "-o", "predictions.csv"]))
