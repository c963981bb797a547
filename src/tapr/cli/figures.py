"""`tapr figures`: the paper's figures by name, from records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tapr.reports.drawing import Drawing
    from tapr.reports.results import Setting

BARS = "bars"
MOST_BARS = 8  # systems that can be told apart


@app.command()
def figures(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Records: files, or folders of them.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The folder to write the figures to.")
    ] = Path("figures"),
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A figure: `bars`, `steps`, `lr`, `batch-size`, `loss`, `randaugment` or `augmix`;"
            " may be repeated.  [default: all that the records can fill]",
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="A setting in which the runs differ; the figure shows accuracy against it.",
        ),
    ] = None,
    png: bool = typer.Option(False, "--png", help="Write a PNG file beside each SVG file."),
    csv: bool = typer.Option(False, "--csv", help="Write the numbers as CSV beside each SVG file."),
) -> None:
    """Draw the paper's figures from records: all that the records suffice for, or those you name.

    `tapr ablate` makes the records for every figure but `bars`, for which any benchmark will do.
    `bars` is drawn if you ask for it, or if the runs fill no other figure. Unfinished runs are
    left out.

    Example: `tapr figures runs/ablation --only lr -o figures`
    """
    from tapr.errors import InputError
    from tapr.reports import results as reading

    results = reading.read(runs)
    for problem in results.problems:
        typer.echo(f"tapr: warning: {problem}", err=True)
    found = 0
    asked = [*_known(only or []), *(over or [])]
    for name in asked or _known():
        drawn = list(_drawn(name, results.settings)) if asked or name != BARS or not found else []
        if asked and not drawn:
            raise InputError(f"cannot draw {name!r} from these records: {_reason(name)}")
        for number, (drawing, numbers) in enumerate(drawn, 1):
            stem = f"{drawing.name}-{number}" if len(drawn) > 1 else drawing.name
            _write(drawing, numbers, out / stem, png, csv)
        found += len(drawn)
    if not found:
        raise InputError(f"these records fill no figure: {_reason(BARS)}")


def _known(only: Sequence[str] | None = None) -> list[str]:
    """These figures, if their names are known; all of them, bars last, if none are given."""
    from tapr.registry import Registry
    from tapr.reports.figures import KINDS

    known = Registry("figure", {name: name for name in (*KINDS, BARS)})
    return list(known) if only is None else [known[name] for name in only]


def _drawn(name: str, settings: Sequence[Setting]) -> Iterator[tuple[Drawing, str]]:
    from tapr.reports import export, plots
    from tapr.reports import figures as kinds
    from tapr.reports.drawing import style
    from tapr.reports.grids import to_csv
    from tapr.reports.tables import table

    if name != BARS:
        yield from ((found.drawing, to_csv(found.grid)) for found in kinds.find(name, settings))
        return
    for setting in settings:
        shown = table(setting)
        with style():
            bars = plots.bars(shown) if 1 < len(shown.rows) <= MOST_BARS else None
        if bars:
            yield bars, export.to_csv([shown])


def _reason(name: str) -> str:
    from tapr.reports.figures import KINDS

    if name == BARS:
        return f"bars show 2 to {MOST_BARS} finished systems in one setting; `tapr bench` runs them"
    maker = f"tapr ablate {name}" if name in KINDS else f"tapr sweep SPEC --over {name}=A,B,C"
    key = " and ".join(KINDS[name].axes) if name in KINDS else name
    return f"no finished runs differ in {key} alone; `{maker} --out FOLDER` makes them"


def _write(drawing: Drawing, numbers: str, path: Path, png: bool, csv: bool) -> None:
    from tapr import files
    from tapr.reports import drawing as drawings

    contents = {".svg": drawings.svg(drawing.figure).encode()}
    if png:
        contents[".png"] = drawings.png(drawing.figure)
    if csv:
        contents[".csv"] = numbers.encode()
    for suffix, content in contents.items():
        target = path.with_name(path.name + suffix)
        with files.atomic(target) as part:
            part.write_bytes(content)
        typer.echo(str(target))
