"""`tapr data`: what data there is, where it is, fetching and checking it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import DATA, among

if TYPE_CHECKING:
    from tapr.datasets import Entry
    from tapr.registry import Registry

data = typer.Typer(
    no_args_is_help=True,
    help="Fetch, check and find data sets.\n\nExample: `tapr data get cifar10`",
)
app.add_typer(data, name="data")

Name = Annotated[
    str,
    typer.Argument(
        help="The name of a data set, as `tapr data list` shows it.", autocompletion=among(DATA)
    ),
]
From = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="A folder or archive that you already have; it is used instead of a download.",
    ),
]


@data.command("list")
def list_() -> None:
    """Show the data sets, the sizes of their downloads, and which are on this machine.

    Example: `tapr data list`
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "what", "download", "here"):
        table.add_column(heading)
    for name, entry in _entries().items():
        table.add_row(name, entry.about, entry.size, "yes" if entry.where() else "no")
    table.add_row("folder:PATH", "your images, a subfolder per class or flat", "-", "-")
    Console().print(table)


@data.command()
def get(name: Name, origin: From = None) -> None:
    """Fetch a data set and verify it; its sources are tried in order, and each attempt is shown.

    Data that is already on this machine is checked, and fetched again only when it is damaged.
    An interrupted download is resumed.

    Example: `tapr data get cifar10`, or `tapr data get cifar100 --from cifar-100-python`
    """
    from tapr.cli.progress import watching

    entry = _entries()[name]
    with watching(f"getting {name}") as watch:
        entry.get(watch, origin.expanduser().absolute() if origin else None)


@data.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The names of data sets.  [default: all that are on this machine]",
            autocompletion=among(DATA),
        ),
    ] = None,
) -> None:
    """Compare the data on this machine with its checksums; exit code 1 when something is wrong.

    Example: `tapr data verify cifar10`
    """
    from tapr.cli.progress import watching
    from tapr.errors import DataError

    entries = _entries()
    wrong = []
    for name in names or [name for name, entry in entries.items() if entry.where()]:
        with watching(f"verifying {name}") as watch:
            problems = entries[name].verify(watch)
        for problem in problems:
            typer.echo(f"{name}: {problem}")
        if problems:
            wrong.append(name)
        else:
            typer.echo(f"{name}: ok")
    if wrong:
        raise DataError(
            f"{', '.join(wrong)}: the files are damaged; `tapr data get NAME` fetches them again"
        )


@data.command()
def where(
    name: Annotated[
        str | None,
        typer.Argument(
            help="The name of a data set; without it the cache folder is printed.",
            autocompletion=among(DATA),
        ),
    ] = None,
) -> None:
    """Print the folder of a data set, or the cache folder, which TAPR_CACHE moves.

    Example: `tapr data where cifar10`
    """
    from tapr import cache
    from tapr.errors import DataError

    if name is None:
        typer.echo(cache.folder())
        return
    entry = _entries()[name]
    place = entry.where()
    if place is None:
        origin = " --from PATH" if entry.size == "yours" else ""
        raise DataError(f"{name} is not on this machine; `tapr data get {name}{origin}` fetches it")
    typer.echo(place)


def _entries() -> Registry[Entry]:
    from tapr.cli.frost import Frost
    from tapr.datasets import DATASETS
    from tapr.registry import Registry

    return Registry("data set", {**DATASETS, Frost.name: Frost()})
