"""`tapr report`: makes a page, tables and figures from records."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr import names
from tapr.cli import app
from tapr.cli.completing import among

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tapr.reports.html import Chapter
    from tapr.reports.leaderboard import Leaderboard
    from tapr.reports.results import Results
    from tapr.reports.tables import Table

STDOUT = "-"
FEW = 4  # settings whose figures and examples fit on one page
MOST = 10_000  # numbers that fit on one page; with more, the page has the leaderboard only
Metric = Annotated[
    str,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="The number to show: " + ", ".join(f"`{name}`" for name in names.METRICS) + ".",
        autocompletion=among(names.METRICS),
    ),
]


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Records: files, or folders of them.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write.  [default: report.html]")
    ] = None,
    csv: str | None = typer.Option(None, metavar="FILE", help="Write every number to a CSV file."),
    markdown: str | None = typer.Option(
        None, metavar="FILE", help="Write the main tables as Markdown."
    ),
    latex: str | None = typer.Option(
        None, metavar="FILE", help="Write the main tables as LaTeX (booktabs)."
    ),
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every image of every run to a Parquet file."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write the figures as SVG and PNG.")
    ] = None,
    metric: Metric = "accuracy",
    examples: bool = typer.Option(True, help="Show images that adaptation fixed or broke."),
) -> None:
    """Write a report page from records: tables, figures, examples, and how to repeat the run.

    Records of different settings get tables of their own. `--csv`, `--markdown` and `--latex` write
    tables (`-` prints them); with one of these, `--parquet` or `--figures`, the page is written
    only if you give `-o`. `--metric` chooses the number that tables and figures show.

    Example: `tapr report runs/demo -o report.html`
    """
    from tapr.reports import results as reading
    from tapr.reports.leaderboard import leaderboard
    from tapr.reports.metrics import METRICS
    from tapr.reports.tables import table

    wanted = METRICS[metric]
    if parquet:
        _write_parquet(runs, parquet)
    results = reading.read(runs)
    for problem in results.problems:
        typer.echo(f"tapr: warning: {problem}", err=True)
    tables = [table(setting, wanted) for setting in results.settings]
    board = leaderboard(tables)
    _write_tables(tables, board, csv, markdown, latex)
    if figures or out or not (csv or markdown or latex or parquet):
        few = board is None or len(tables) <= FEW
        if figures:
            _write_figures(_chapters(tables, examples, True), board, figures)
        if out or not figures:
            out = out or Path("report.html")
            numbers = sum(len(row.cells) for table in tables for row in table.rows)
            whole = board is None or numbers <= MOST
            chapters = _chapters(tables, examples, few) if whole else []
            command = shlex.join(["tapr", "report", *map(str, runs), "-o", str(out)])
            _write(out, _page(chapters, results, command, board).encode())


def _write_parquet(runs: list[Path], path: Path) -> None:
    from tapr import records

    records.load(runs).to_parquet(path)
    typer.echo(f"{path}: {path.stat().st_size / 1024:,.0f} KiB", err=True)


def _write_tables(
    tables: Sequence[Table],
    board: Leaderboard | None,
    csv: str | None,
    markdown: str | None,
    latex: str | None,
) -> None:
    from tapr.reports import export

    wanted: tuple[tuple[str | None, Callable[[], str]], ...] = (
        (csv, lambda: export.to_csv(tables)),
        (markdown, lambda: export.to_markdown(tables, board)),
        (latex, lambda: export.to_latex(tables, board)),
    )
    for where, make in wanted:
        if where == STDOUT:
            typer.echo(make(), nl=False)
        elif where:
            _write(Path(where), make().encode())


def _chapters(tables: Sequence[Table], examples: bool, few: bool) -> list[Chapter]:
    """The chapters of the page; with many settings they have no figures, and fewer examples."""
    from tapr.cli.report_examples import gallery
    from tapr.reports.html import Chapter, Gallery
    from tapr.reports.plots import drawings

    models: set[object] = set()
    chapters = []
    for table in tables:
        model = table.setting.facts.get("model")
        wanted = examples and (few or model not in models)
        models.add(model)
        shown = drawings(table) if few else []
        chapters.append(Chapter(table, shown, gallery(table) if wanted else Gallery()))
    return chapters


def _page(
    chapters: Sequence[Chapter], results: Results, command: str, board: Leaderboard | None
) -> str:
    import tapr
    from tapr.reports.html import page

    return page(chapters, results, command, tapr.__version__, board)


def _write_figures(chapters: Sequence[Chapter], board: Leaderboard | None, folder: Path) -> None:
    import io

    from tapr.cli.report_examples import contact_sheet
    from tapr.reports.drawing import png, svg
    from tapr.reports.plots import costs

    if board and (drawing := costs(board)):
        _write(folder / f"{drawing.name}.svg", svg(drawing.figure).encode())
        _write(folder / f"{drawing.name}.png", png(drawing.figure))
    for number, chapter in enumerate(chapters, 1):
        prefix = f"{number}-" if len(chapters) > 1 else ""
        for drawing in chapter.drawings:
            _write(folder / f"{prefix}{drawing.name}.svg", svg(drawing.figure).encode())
            _write(folder / f"{prefix}{drawing.name}.png", png(drawing.figure))
        page = contact_sheet(chapter.gallery)
        if page:
            file = io.BytesIO()
            page.save(file, "PNG", optimize=True)
            _write(folder / f"{prefix}examples.png", file.getvalue())


def _write(path: Path, content: bytes) -> None:
    from tapr import files

    with files.atomic(path) as part:
        part.write_bytes(content)
    typer.echo(f"{path}: {len(content) / 1024:,.0f} KiB", err=True)
