"""`tapr demo`: test-time adaptation at work, in a few minutes, with a page at the end."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app

if TYPE_CHECKING:
    from tapr.errors import DataError

NEEDED = ("jinja2", "matplotlib", "sklearn")
# PEST takes half a minute, so one kind of it is enough to see.
LEFT_OUT = {"pest-randaugment", "pest-control"}


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder of the records and of the page.")
    ] = Path("runs/demo"),
) -> None:
    """See adaptation at work on two data sets, and get a report page; takes a few minutes.

    First a model that was trained on rendered digits reads handwritten ones, which needs no
    download. Then a model meets CIFAR-10 photographs with noise, blur, snow and low contrast; they
    are fetched (139 MB) if they are not on this machine. If you interrupt it, the same command
    resumes it.

    Example: `tapr demo`
    """
    from tapr.cli.ending import stopped

    _check_installed()
    try:
        typer.echo("1 of 3: handwritten digits, read by a model that was trained on rendered ones")
        _bench("digits", out)
        typer.echo("2 of 3: photographs with noise, blur, snow and low contrast, one after another")
        trouble = _fetch("cifar10")
        if trouble is None:
            _bench("demo", out)
        else:
            typer.echo(f"CIFAR-10 is not available, so the page shows the digits: {trouble}")
        typer.echo("3 of 3: the page")
        _page(out / ("digits" if trouble else "demo"), out / "report.html")
    except KeyboardInterrupt:
        raise stopped() from None


def _check_installed() -> None:
    from importlib.util import find_spec

    from tapr.errors import InputError

    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise InputError(
            f"the demo needs {', '.join(missing)}, which is not installed:"
            " pip install 'torch-tapr[demo]'"
        )


def _bench(name: str, out: Path) -> None:
    """Run a ready-made spec, or what is left of it, and show its table."""
    from tapr.cli.bench import run_cells, view_of
    from tapr.runs import spec
    from tapr.runs.bench import Bench
    from tapr.runs.store import locked

    values = spec.values(name)
    methods = {label: each for label, each in values["methods"].items() if label not in LEFT_OUT}
    run = Bench(spec.make({**values, "methods": methods}), out / name)
    with locked(out / name):
        run_cells(run, view_of(run.cells, as_json=False, quiet=False))


def _fetch(name: str) -> DataError | None:
    """Fetch a data set if it is not here; return what stood in the way."""
    from tapr import datasets
    from tapr.cli.progress import watching
    from tapr.errors import DataError

    try:
        with watching(f"getting {name}") as watch:
            datasets.DATASETS[name].get(watch)
    except DataError as error:
        return error
    return None


def _page(records: Path, page: Path) -> None:
    from tapr.cli.report import report

    report(
        [records],
        page,
        csv=None,
        markdown=None,
        latex=None,
        parquet=None,
        figures=None,
        metric="accuracy",
        examples=True,
    )
    typer.echo(f"open {page.absolute().as_uri()}")
