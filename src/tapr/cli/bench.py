"""`tapr bench`: methods on a stream, compared; resumable."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app

if TYPE_CHECKING:
    from tapr.runs.bench import Bench


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(option: str, text: str | None) -> list[int] | None:
    from tapr.errors import InputError

    try:
        return None if text is None else [int(part) for part in _list(text) or []]
    except ValueError as error:
        raise InputError(f"expected {option} as whole numbers, got {text!r}") from error


@app.command()
def bench(
    spec: Annotated[
        str, typer.Argument(help="A ready-made spec (`--list` shows them) or a TOML file.")
    ] = "cifar10c",
    list_specs: bool = typer.Option(False, "--list", help="Show the ready-made specs and stop."),
    data: str | None = typer.Option(None, help="e.g. `cifar10c`, `folder:PATH`."),
    split: str | None = typer.Option(None, help="The part of the data, e.g. `validation`."),
    corruptions: str | None = typer.Option(
        None, help="Names, comma between; `none`: clean images."
    ),
    severity: str | None = typer.Option(None, help="1 to 5; several with commas."),
    images: int | None = typer.Option(None, help="Images of each domain."),
    methods: str | None = typer.Option(
        None,
        "--methods",
        "--method",
        help="e.g. `source,norm,tent,pest-augmix`, or your own `module:Class`.",
    ),
    batch_size: int | None = typer.Option(None),
    model: str | None = typer.Option(None, help="A name, a path, or `module:function`."),
    architecture: str | None = typer.Option(
        None, help="Of a checkpoint that is not ours, e.g. `robustbench:Standard`."
    ),
    seed: str | None = typer.Option(None, help="Seeds of the adapters; several with commas."),
    protocol: str | None = typer.Option(None, help="`each`, `continual`, `mixed`, `gradual`."),
    order: str | None = typer.Option(None, help="`listed`, `shuffled`, `sorted`, `dirichlet`."),
    device: str | None = typer.Option(None, help="`cpu`, `cuda`, ..."),
    out: Annotated[Path | None, typer.Option(help="Folder of the records.")] = None,
    resume: bool = typer.Option(True, help="Go on where the folder's records stand, or refuse to."),
    as_json: bool = typer.Option(False, "--json", help="A JSON line for each finished cell."),
    quiet: bool = typer.Option(False, "--quiet", help="Only errors."),
) -> None:
    """Run methods on a stream and compare them; a killed run goes on where it stopped.

    Flags replace values of the spec. Every cell (a method on a domain with a seed) is one file of
    records in `--out`; finished cells are not run again. `tapr report OUT` shows them.

    Example: `tapr bench cifar10c --corruptions fog,contrast --images 1000 --out runs/first`
    """
    from tapr.cli.bench_views import JsonLines, Lines, LiveTable, Silent
    from tapr.runs import spec as specs
    from tapr.runs.bench import Bench

    if list_specs:
        for name in sorted(specs.READY):
            typer.echo(f"{name:16s} {specs.load(name, {}).about}")
        return
    names = _list(corruptions)
    overrides: dict[str, Any] = {
        "data": data,
        "split": split,
        "corruptions": [] if names == ["none"] else names,
        "severities": _numbers("--severity", severity),
        "images": images,
        "methods": _list(methods),
        "batch_size": batch_size,
        "model": model,
        "architecture": architecture,
        "seeds": _numbers("--seed", seed),
        "protocol": protocol,
        "order": order,
        "device": device,
    }
    chosen = specs.load(spec, {key: value for key, value in overrides.items() if value is not None})
    folder = out or Path("runs") / chosen.name
    run = Bench(chosen, folder)
    _check_fresh(run, resume)
    view = Silent() if quiet else JsonLines() if as_json else None
    if view is None:
        view = LiveTable(run) if sys.stdout.isatty() else Lines(run)
    with run.locked():
        _run(run, view)
    if not quiet and not as_json:
        typer.echo(f"records: {folder}    page: tapr report {folder} -o report.html")


def _check_fresh(run: Bench, resume: bool) -> None:
    from tapr.errors import InputError

    if not resume and any(run.folder.glob("*.jsonl")):
        raise InputError(
            f"{run.folder} holds records already, and --no-resume asks for a fresh start: choose"
            " another --out, or remove the folder"
        )


def _run(run: Bench, view: Any) -> None:
    try:
        with view:
            for cell in run.cells:
                view.start(cell, run.journal(cell).run)
                for record in run.run(cell):
                    view.batch(cell, record)
                view.finish(cell)
    except KeyboardInterrupt:
        typer.echo("stopped; the same command goes on where this one stopped", err=True)
        raise typer.Exit(130) from None
