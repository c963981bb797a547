"""`tapr adapt`: your own model on your own images."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, among
from tapr.cli.shared import (
    Architecture,
    Chosen,
    Crop,
    Device,
    Images,
    Interpolation,
    Labels,
    Mean,
    Model,
    Size,
    Std,
    options_of,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tapr.runs.adapting import Request
    from tapr.runs.summary import Summary

SHOWN = 20  # classes, the most frequent
CHANGED = 10  # classes, the most changed, where not all are shown
WIDTH = 30  # characters of the longest bar


@app.command()
def adapt(
    source: Images,
    model: Model,
    out: Annotated[Path, typer.Option("--out", "-o", help="The CSV file to write.")],
    architecture: Architecture = None,
    labels: Labels = None,
    truth: Annotated[
        Path | None,
        typer.Option(
            help="A CSV file of path,label from which the accuracy is computed; labels are never"
            " used to adapt."
        ),
    ] = None,
    method: str = typer.Option(
        "steady",
        help="The method: a name (`tapr methods` lists them), or your own `module:Class`.",
        autocompletion=among(METHODS),
    ),
    preset: str = typer.Option("paper", help="The method's preset: its options as published."),
    option: Chosen = None,
    batch_size: int = typer.Option(64, min=1, help="The number of images in a batch."),
    shuffle: bool = typer.Option(
        False, "--shuffle", help="Shuffle the list of images; the seed decides the order."
    ),
    seed: int = typer.Option(0, help="The seed of the augmented views and of --shuffle."),
    device: Device = "auto",
    compare: bool = typer.Option(
        True, help="Predict with the unadapted model, too (one more forward pass), and compare."
    ),
    strict: bool = typer.Option(
        False, "--strict", help="Stop at the first image that cannot be read."
    ),
    resume: bool = typer.Option(True, help="Resume where the CSV file ends, or start again."),
    save_state: Annotated[
        Path | None, typer.Option(help="Save the adapted state in this file at the end.")
    ] = None,
    load_state: Annotated[
        Path | None, typer.Option(help="Start from a state that --save-state wrote.")
    ] = None,
    size: Size = None,
    mean: Mean = None,
    std: Std = None,
    crop: Crop = None,
    interpolation: Interpolation = None,
    as_json: bool = typer.Option(False, "--json", help="Print the summary as one JSON object."),
    quiet: bool = typer.Option(False, "--quiet", help="Print errors only."),
) -> None:
    """Adapt a model to a folder of images while it predicts them; the same command resumes it.

    Each image becomes a row of the CSV file as soon as its batch is done: class, confidence and
    entropy, for the adapted and for the unadapted model. A summary at the end says what changed,
    and warns of signs of a collapse. No labels are needed.

    Example: `tapr adapt photos/ --model timm:resnet50 -o predictions.csv`
    """
    from tapr.runs.adapting import Request

    request = Request(
        source=source,
        model=model,
        out=out,
        architecture=architecture,
        labels=labels,
        truth=truth,
        method=method,
        options={"preset": preset, **options_of(option or [])},
        seed=seed,
        batch_size=batch_size,
        shuffle=shuffle,
        device=device,
        compare=compare,
        strict=strict,
        resume=resume,
        save_state=save_state,
        load_state=load_state,
        settings=settings_of(size, mean, std, crop, interpolation),
    )
    _run(request, as_json, quiet)


def _run(request: Request, as_json: bool, quiet: bool) -> None:
    from dataclasses import asdict

    from tapr.cli.ending import stopped
    from tapr.cli.progress import watching
    from tapr.datasets.base import Logged
    from tapr.runs.adapting import Adapting

    try:
        with nullcontext(Logged()) if quiet else watching("adapting") as watch:
            summary = Adapting(request).run(watch)
    except KeyboardInterrupt:
        raise stopped() from None
    if as_json and not quiet:
        content = {"predictions": str(request.out), **asdict(summary)}
        typer.echo(json.dumps(content, allow_nan=False))
    elif not quiet:
        typer.echo(text(summary))
        typer.echo(b"\npredictions: " + bytes(request.out))  # a path may be more than UTF-8 has


def text(summary: Summary) -> str:
    """The summary as lines: the numbers, a bar for each class, then the warnings."""
    return "\n".join([*_figures(summary), "", *_bars(summary), *_warnings(summary)])


def _figures(summary: Summary) -> Iterator[str]:
    failed = f", {summary.failed:,} could not be read or predicted" if summary.failed else ""
    yield f"{summary.images:,} images predicted{failed}"
    if summary.changed is not None:
        share = summary.changed / max(summary.images, 1)
        yield f"predictions that adaptation changed  {summary.changed:,} ({share:.1%})"
    if summary.agreement is not None:
        start, end = summary.agreement
        yield f"agreement with the unadapted model   {start:.1%} -> {end:.1%}, start and end"
    if summary.accuracy is not None:
        known = f"accuracy where the class is known    {_pair(summary.accuracy, '.1%')}"
        yield f"{known} of {summary.known:,} images"
    yield f"mean confidence                      {_pair(summary.confidence, '.3f')}"
    most = f"nats (at most {summary.most_entropy:.3f})"
    yield f"mean entropy                         {_pair(summary.entropy, '.3f')} {most}"
    if summary.strip:
        yield f"health along the stream              {summary.strip}  (. ok, + watch, # harm)"
    if summary.acts:
        legend = "(a safer answer, u nothing learnt either, r restart)"
        yield f"guard's actions along the stream     {summary.acts}  {legend}"
    if summary.guard:
        did = ", ".join(f"{count:,} {action}" for action, count in summary.guard.items())
        yield f"guard's actions, in images           {did}"


def _pair(values: tuple[float | None, float], form: str) -> str:
    before, after = values
    return format(after, form) if before is None else f"{before:{form}} -> {after:{form}}"


def _bars(summary: Summary) -> Iterator[str]:
    """The classes, the most frequent first."""
    classes = [(name, before, after or 0) for name, before, after in summary.classes]
    ranked = sorted(classes, key=lambda entry: -entry[2])
    shown = [entry for entry in ranked[:SHOWN] if entry[1] or entry[2]]
    wide = max([len(name) for name, _, _ in shown], default=0)
    most = max([max(before or 0, after) for _, before, after in shown], default=1)
    for name, before, after in shown:
        was = "" if before is None else f"{before:>8,} ->"
        yield f"{name:{wide}}{was}{after:>8,}  {'#' * round(WIDTH * after / most)}"
    if len(ranked) > len(shown):
        rest = sum(after for _, _, after in ranked[len(shown) :])
        yield f"and {len(ranked) - len(shown)} more classes with {rest:,} images"
        yield from _most_changed(classes)


def _most_changed(classes: list[tuple[str, int | None, int]]) -> Iterator[str]:
    """The classes that are called more or less often than by the unadapted model, most first."""
    known = [(name, before, after) for name, before, after in classes if before is not None]
    changed = [entry for entry in known if entry[1] != entry[2]]
    changed.sort(key=lambda entry: (-abs(entry[2] - entry[1]), entry[0]))
    if not changed:
        return
    yield ""
    yield f"most changed, of {len(changed):,} classes that are called more or less often"
    for name, before, after in changed[:CHANGED]:
        yield f"  {name}  {before:,} -> {after:,}"


def _warnings(summary: Summary) -> Iterator[str]:
    if summary.warnings:
        yield ""
        yield from (f"WARNING  {sentence}" for sentence in summary.warnings)
