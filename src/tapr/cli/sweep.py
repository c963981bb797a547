"""`tapr sweep` and `tapr ablate`: a benchmark over a grid, in parallel processes or on Ray."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tapr.cli import app
from tapr.cli.completing import ablations, among, specs
from tapr.cli.overrides import Replaced, with_overrides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tapr.cli.bench_views import BenchView
    from tapr.runs.bench import Cell
    from tapr.runs.copies import Copies
    from tapr.runs.parallel import Event
    from tapr.runs.sweep import Task

Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--over",
        metavar="KEY=A,B,C",
        help="The values to try for an option of the methods or a field of the spec; may be"
        " repeated, and then every combination runs.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The number of processes; each has one thread.  [default: one per core; 1 on a GPU]",
    ),
]
PLACES = ("processes", "ray")
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="WHERE",
        help="Where the cells run: in `processes` on this machine, or as tasks of `ray`, here or on"
        " a cluster (needs `torch-tapr[ray]`).",
        autocompletion=among(PLACES),
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address of the cluster for --on ray: HOST:PORT, or `auto` for the one that this"
        " machine belongs to.  [default: start Ray on this machine]",
    ),
]
CopyTo = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Copy each finished file of records to this URL as well, and begin with those that are"
        " there: a folder, or what fsspec reaches, e.g. `s3://bucket/runs` (needs `s3fs`).",
    ),
]
Out = Annotated[Path | None, typer.Option(help="The folder of the records.  [default: runs/NAME]")]
Resume = Annotated[
    bool,
    typer.Option(
        help="Resume after the last record in the folder, or refuse a folder that has records."
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print a JSON line for each finished cell instead of a table."),
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")]


@dataclass
class Wanted:
    """How a sweep is to run and what it shows."""

    over: list[str] | None
    jobs: int | None
    on: str
    address: str | None
    out: Path | None
    copy_to: str | None
    resume: bool
    as_json: bool
    quiet: bool


@app.command()
@with_overrides
def sweep(
    spec: Annotated[
        str, typer.Argument(help="A ready-made spec or a TOML file.", autocompletion=specs)
    ],
    over: Assignments = None,
    jobs: Jobs = None,
    on: On = "processes",
    address: Address = None,
    out: Out = None,
    copy_to: CopyTo = None,
    resume: Resume = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    replaced: Replaced,
) -> None:
    """Run a benchmark for every combination of some values, several cells at once.

    The values come from the spec's table `[over]` and from `--over`, which wins. A key is a field
    of the spec (`batch_size`), an option of its methods (`lr`, `steps`) or an option of their
    augmentation (`severity`, `m`). A method that has no such option runs once. The records are
    those of `tapr bench`, whatever `--jobs` and `--on` are, and a killed sweep resumes where it
    stopped.

    Example: `tapr sweep demo --over lr=1e-4,1e-3 --over steps=1,5 --out runs/grid`
    """
    from tapr.runs import spec as specs

    wanted = Wanted(over, jobs, on, address, out, copy_to, resume, as_json, quiet)
    report_on(run_sweep(specs.values(spec, size=replaced.size), replaced, wanted), wanted)


@app.command()
@with_overrides
def ablate(
    name: Annotated[
        str,
        typer.Argument(
            help="The ablation: `steps`, `lr`, `batch-size`, `loss`, `randaugment` or `augmix`.",
            autocompletion=ablations,
        ),
    ],
    over: Assignments = None,
    jobs: Jobs = None,
    on: On = "processes",
    address: Address = None,
    out: Out = None,
    copy_to: CopyTo = None,
    resume: Resume = True,
    as_json: AsJson = False,
    quiet: Quiet = False,
    *,
    replaced: Replaced,
) -> None:
    """Repeat an ablation of the paper: how much does a setting matter on this model and data?

    An ablation is a ready-made `tapr sweep` with the paper's values. `--over` replaces the values
    or adds an option; the other flags replace the data, the model and so on. All six ablations may
    write into the same folder.

    Example: `tapr ablate lr --over lr=1e-5,1e-4,1e-3 --corruptions fog --images 500`
    """
    from tapr.runs import spec as specs
    from tapr.runs.sweep import ABLATIONS

    values = specs.values(name, ABLATIONS, replaced.size)
    wanted = Wanted(over, jobs, on, address, out, copy_to, resume, as_json, quiet)
    folder = run_sweep(values, replaced, wanted)
    if not quiet and not as_json:
        typer.echo(f"records: {folder}    figure: tapr figures {folder} --only {name}")


def report_on(folder: Path, wanted: Wanted) -> None:
    """Say where the records are."""
    if not wanted.quiet and not wanted.as_json:
        typer.echo(f"records: {folder}    page: tapr report {folder} -o report.html")


def run_sweep(values: dict[str, Any], replaced: Replaced, wanted: Wanted) -> Path:
    """Run every cell of a spec over a grid; return the folder of the records."""
    from tapr.cli.bench import check_fresh, view_of
    from tapr.runs import spec as specs
    from tapr.runs import sweep as sweeps
    from tapr.runs.copies import Copies
    from tapr.runs.store import locked

    check_place(wanted.on, wanted.address)
    copies = Copies(wanted.copy_to) if wanted.copy_to else None
    over = {**values.pop("over", {}), **sweeps.parse(wanted.over or [])}
    made = sweeps.expand(specs.replaced(values, replaced.values, replaced.options), over)
    folder = wanted.out or Path("runs") / made[0].name
    tasks = sweeps.tasks(made, over, folder)
    check_fresh(folder, wanted.resume)
    view = view_of([task.cell for task in tasks], wanted.as_json, wanted.quiet)
    with locked(folder):
        _show(tasks, folder, wanted, view, copies)
    return folder


def check_place(on: str, address: str | None) -> None:
    """Refuse an unknown place to run cells, and an address where there is nothing to reach."""
    from tapr.errors import InputError, UnknownNameError
    from tapr.registry import suggest

    if on not in PLACES:
        raise UnknownNameError(f"unknown place {on!r} to run cells on; {suggest(on, PLACES)}")
    if address is not None and on != "ray":
        raise InputError(f"expected --on ray with --address {address}, got --on {on}")


def _events(tasks: Sequence[Task], folder: Path, wanted: Wanted) -> Iterator[Event]:
    """Run the cells where they are wanted."""
    from tapr.runs import on_ray, parallel
    from tapr.runs.device import usable

    if wanted.on == "ray":
        return on_ray.run(tasks, folder, wanted.jobs, wanted.address)
    by_cores = all(usable(task.spec.device).type == "cpu" for task in tasks)
    jobs = wanted.jobs or (parallel.usable_cores() if by_cores else 1)
    return parallel.run(tasks, folder, jobs)


def _show(
    tasks: Sequence[Task], folder: Path, wanted: Wanted, view: BenchView, copies: Copies | None
) -> None:
    """Run what is not finished, and show all; what failed is named at the end."""
    from tapr.cli.ending import stopped
    from tapr.errors import TaprError
    from tapr.records import BatchRecord
    from tapr.runs.store import Journal

    failed: list[str] = []
    paths = {task.cell: folder / task.cell.file for task in tasks}
    if copies:
        copies.fetch([path for path in paths.values() if not Journal(path).finished])
    journals = {cell: Journal(path) for cell, path in paths.items()}

    def finish(cell: Cell) -> None:
        view.finish(cell)
        if copies:
            copies.send(paths[cell])

    try:
        with view:
            for cell, journal in journals.items():
                if journal.finished:
                    journal.tidy()
                    view.start(cell, journal.run)
                    finish(cell)
            left = [task for task in tasks if not journals[task.cell].finished]
            for kind, cell, detail in _events(left, folder, wanted):
                if kind == "start":
                    view.start(cell, journals[cell].run)
                elif isinstance(detail, BatchRecord):
                    view.batch(cell, detail)
                elif kind == "done":
                    finish(cell)
                else:
                    failed.append(f"{cell.column} {cell.title} seed {cell.seed}: {detail}")
    except KeyboardInterrupt:
        raise stopped() from None
    if failed:
        count = f"{len(failed)} of {len(tasks)} cells failed; the same command tries them again"
        raise TaprError("\n  ".join([count, *failed]))
