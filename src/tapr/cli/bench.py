"""`tapr bench`: methods on a stream, compared; resumable."""

from __future__ import annotations

import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app
from tapr.cli.completing import among, specs
from tapr.cli.logs import LOGGERS
from tapr.cli.overrides import Replaced, with_overrides
from tapr.cli.sweep import Address, CopyTo, On, Wanted, check_place, report_on, run_sweep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tapr.cli.bench_views import BenchView
    from tapr.cli.logs import Logger
    from tapr.runs.bench import Bench, Cell


@app.command()
@with_overrides
def bench(
    spec: Annotated[
        str,
        typer.Argument(
            help="A ready-made spec (`--list` shows them) or a TOML file.", autocompletion=specs
        ),
    ] = "cifar10c",
    list_specs: bool = typer.Option(False, "--list", help="Show the ready-made specs and stop."),
    on: On = "processes",
    address: Address = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the records.  [default: runs/NAME]")
    ] = None,
    copy_to: CopyTo = None,
    log: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Also log every batch to another tool: `tensorboard` writes into OUT/tensorboard.",
            autocompletion=among(LOGGERS),
        ),
    ] = None,
    resume: bool = typer.Option(
        True, help="Resume where the folder's records end, or refuse a folder that has records."
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print a JSON line for each finished cell instead of a table."
    ),
    quiet: bool = typer.Option(False, "--quiet", help="Print nothing but errors."),
    *,
    replaced: Replaced,
) -> None:
    """Run methods on a stream and compare them; a killed run resumes where it stopped.

    Flags replace values of the spec. Every cell (a method on a domain with a seed) is one file of
    records in `--out`; finished cells are not run again. `tapr report OUT` shows them. A spec that
    goes over several streams or models, such as `leaderboard`, runs a process for every core, any
    spec does with `--copy-to`, and `--on ray` runs as many tasks as the cluster has cores. Under
    `torchrun -m tapr bench` all processes share every batch and adapt as one.

    Example: `tapr bench cifar10c --corruptions fog,contrast --images 1000 --out runs/first`
    """
    from tapr.cli.bench_views import BenchView
    from tapr.runs import spec as specs
    from tapr.runs import together
    from tapr.runs.bench import Bench
    from tapr.runs.store import locked

    if list_specs:
        for name in sorted(specs.READY):
            typer.echo(f"{name:16s} {specs.values(name)['about']}")
        return
    values = specs.values(spec, size=replaced.size)
    check_place(on, address)
    if "over" in values or on == "ray" or copy_to:
        wanted = Wanted(None, None, on, address, out, copy_to, resume, as_json, quiet)
        _sweep(values, replaced, wanted, log)
        return
    chosen = specs.make(specs.replaced(values, replaced.values, replaced.options))
    folder = out or Path("runs") / chosen.name
    run = Bench(chosen, folder)
    if not together.is_first():  # the first process writes and prints for all
        with together.joined(chosen.device):
            run_cells(run, BenchView(), None)
        return
    logger = LOGGERS[log](folder) if log else None
    check_fresh(folder, resume)
    with locked(folder), together.joined(chosen.device):
        run_cells(run, view_of(run.cells, as_json, quiet), logger)
    if not quiet and not as_json:
        typer.echo(f"records: {folder}    page: tapr report {folder} -o report.html")


def _sweep(values: dict[str, Any], replaced: Replaced, wanted: Wanted, log: str | None) -> None:
    """A spec over several values, or on Ray, is a sweep: many cells at once."""
    from tapr.errors import InputError
    from tapr.runs import together

    if together.processes() > 1:
        raise InputError(
            "expected a spec of one stream under torchrun, got one that goes over several; `tapr"
            " bench` alone runs its cells in as many processes as there are cores"
        )
    if log:
        raise InputError(
            "--log is for one stream at a time, in this process; got a spec over several, or --on"
        )
    report_on(run_sweep(values, replaced, wanted), wanted)


def check_fresh(folder: Path, resume: bool) -> None:
    """Refuse a folder with records when none are wanted."""
    from tapr.errors import InputError

    if not resume and any(folder.glob("*.jsonl")):
        raise InputError(
            f"{folder} already holds records, and --no-resume asks for a fresh start: choose"
            " another --out, or remove the folder"
        )


def view_of(cells: Sequence[Cell], as_json: bool, quiet: bool) -> BenchView:
    """What to show of the cells: a table on a terminal, else lines."""
    from tapr.cli.bench_views import BenchView, JsonLines, Lines, LiveTable

    if quiet or as_json:
        return BenchView() if quiet else JsonLines()
    return LiveTable(cells) if sys.stdout.isatty() else Lines(cells)


def run_cells(run: Bench, view: BenchView, logger: Logger | None = None) -> None:
    """Run the cells that are not finished, and show all; an interruption is an exit code."""
    from tapr.cli.ending import stopped

    try:
        with view, logger or nullcontext():
            for cell in run.cells:
                journal = run.journal(cell)
                view.start(cell, journal.run)
                observe = logger.observer(cell) if logger else None
                with closing(run.run(cell, observe, journal)) as batches:  # saved if interrupted
                    for record in batches:
                        view.batch(cell, record)
                view.finish(cell)
    except KeyboardInterrupt:
        raise stopped() from None
