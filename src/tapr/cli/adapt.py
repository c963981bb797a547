"""`tapr adapt`: your own model on your own images."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, among, models

if TYPE_CHECKING:
    from tapr.runs.adapting import Request

PREPROCESSING = "Preprocessing, where the model's config does not say it"


@app.command()
def adapt(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="Images: a folder, a text file of paths, or `-` for stdin."
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            help="A shipped model's name, a checkpoint's path, `timm:NAME`, or `module:function`.",
            autocompletion=models,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV to write.")],
    architecture: Annotated[
        str | None, typer.Option(help="Of a checkpoint that is not ours, e.g. `resnet-50`.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Class names: a text file, one per line, or JSON."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="A CSV of path,label: to keep the score. Never used to adapt."),
    ] = None,
    method: str = typer.Option(
        "steady",
        help="`steady`, `source`, `norm`, `tent`, `pest`, `module:Class`.",
        autocompletion=among(METHODS),
    ),
    preset: str = typer.Option("paper", help="A protocol of the method."),
    option: Annotated[
        list[str] | None,
        typer.Option(help="An option of the method, e.g. `lr=1e-3`; may be repeated."),
    ] = None,
    batch_size: int = typer.Option(64, min=1, help="Images in a batch."),
    shuffle: bool = typer.Option(False, "--shuffle", help="Mix the images, by the seed, first."),
    seed: int = typer.Option(0, help="Decides the views, and the order with --shuffle."),
    device: str = typer.Option("cpu", help="`cpu`, `cuda`, ..."),
    compare: bool = typer.Option(
        True, help="Predict with the unadapted model too: one more forward, needed to compare."
    ),
    strict: bool = typer.Option(False, "--strict", help="Stop at an image that cannot be read."),
    resume: bool = typer.Option(True, help="Go on where the CSV ends, or start anew."),
    save_state: Annotated[
        Path | None, typer.Option(help="Keep the adapted state here, in the end.")
    ] = None,
    load_state: Annotated[
        Path | None, typer.Option(help="Begin with a state kept by an earlier run.")
    ] = None,
    size: str | None = typer.Option(
        None, help="`224`, or channels x height x width.", rich_help_panel=PREPROCESSING
    ),
    mean: str | None = typer.Option(
        None, help="Of the channels, e.g. `0.485,0.456,0.406`.", rich_help_panel=PREPROCESSING
    ),
    std: str | None = typer.Option(
        None, help="Their deviation, e.g. `0.229,0.224,0.225`.", rich_help_panel=PREPROCESSING
    ),
    crop: float | None = typer.Option(
        None, help="Share of the shorter side that is kept.", rich_help_panel=PREPROCESSING
    ),
    interpolation: str | None = typer.Option(
        None, help="`bilinear`, `bicubic`, ...", rich_help_panel=PREPROCESSING
    ),
    as_json: bool = typer.Option(False, "--json", help="The summary as JSON."),
    quiet: bool = typer.Option(False, "--quiet", help="Only errors."),
) -> None:
    """Adapt a model to a folder of images while it predicts them; a killed run goes on.

    Each image becomes a row of the CSV as soon as its batch is done: class, confidence, entropy,
    and the same of the unadapted model. The end is a summary: what changed, and any signs of a
    collapse. No labels are needed.

    Example: `tapr adapt photos/ --model timm:resnet50 -o predictions.csv`
    """
    from tapr.runs.adapting import Request

    settings = {
        "input_size": _size(size),
        "mean": _numbers("--mean", mean),
        "std": _numbers("--std", std),
        "crop_pct": crop,
        "interpolation": interpolation,
    }
    request = Request(
        source=source,
        model=model,
        out=out,
        architecture=architecture,
        labels=labels,
        truth=truth,
        method=method,
        options={"preset": preset, **_options(option or [])},
        seed=seed,
        batch_size=batch_size,
        shuffle=shuffle,
        device=device,
        compare=compare,
        strict=strict,
        resume=resume,
        save_state=save_state,
        load_state=load_state,
        settings={key: value for key, value in settings.items() if value is not None},
    )
    _run(request, as_json, quiet)


def _run(request: Request, as_json: bool, quiet: bool) -> None:
    from dataclasses import asdict

    from tapr.cli.adapt_views import text
    from tapr.cli.progress import watching
    from tapr.datasets.base import Logged
    from tapr.runs.adapting import Adapting

    try:
        with nullcontext(Logged()) if quiet else watching("adapting") as watch:
            summary = Adapting(request).run(watch)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on where this one stopped", err=True)
        raise typer.Exit(130) from None
    if as_json and not quiet:
        typer.echo(json.dumps({"predictions": str(request.out), **asdict(summary)}))
    elif not quiet:
        typer.echo(text(summary))
        typer.echo(f"\npredictions: {request.out}")


def _options(given: list[str]) -> dict[str, Any]:
    """What `name=value` pairs say."""
    from tapr.errors import InputError
    from tapr.runs import spec as specs

    options: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise InputError(f"expected an option as name=value, got {pair!r}")
        options[name] = specs.value(value)
    return options


def _size(text: str | None) -> list[int] | None:
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


def _numbers(option: str, text: str | None) -> list[float] | float | None:
    from tapr.errors import InputError

    if text is None:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InputError(f"expected {option} as numbers with commas, got {text!r}") from error
    return values[0] if len(values) == 1 else values
