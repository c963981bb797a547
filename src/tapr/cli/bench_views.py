"""What a benchmark shows while it runs: a live table, plain lines, JSON, or nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tapr import records
from tapr.reports.beside import Beside, beside, own
from tapr.reports.published import TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tapr.records import BatchRecord, Confusion, RunRecord
    from tapr.runs.bench import Cell

MOST_ACROSS = 8  # methods that fit side by side


@dataclass
class Tally:
    """The images of a cell predicted so far, and how many of them were right."""

    right: int = 0
    images: int = 0
    seconds: float = 0.0
    done: bool = False
    confusion: Confusion = field(default_factory=Counter)

    def add(self, record: BatchRecord) -> None:
        """Count the images of a batch."""
        self.right += record.correct
        self.images += len(record.predicted)
        self.seconds += record.seconds
        self.confusion.update(records.confusion([record]))

    @property
    def accuracy(self) -> float:
        """The share predicted right so far, in percent."""
        return 100 * self.right / max(self.images, 1)


class BenchView:
    """Counts what the cells have done, and shows nothing: the base of every view."""

    def __init__(self) -> None:
        self.tallies: dict[Cell, Tally] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self, cell: Cell, so_far: RunRecord | None) -> None:
        """A cell begins, or resumes behind what was done before."""
        tally = self.tallies[cell] = Tally()
        for record in so_far.batches if so_far else []:
            tally.add(record)

    def batch(self, cell: Cell, record: BatchRecord) -> None:
        """A batch of the cell is done."""
        self.tallies[cell].add(record)

    def finish(self, cell: Cell) -> None:
        """All batches of the cell are done."""
        self.tallies[cell].done = True


class JsonLines(BenchView):
    """A JSON line for each finished cell."""

    def finish(self, cell: Cell) -> None:
        """Print the cell's accuracy and pace as JSON."""
        super().finish(cell)
        tally = self.tallies[cell]
        line = {
            "domain": cell.column,
            "method": cell.label,
            "title": cell.identity["title"],
            **({"variant": cell.variant} if cell.variant else {}),
            "seed": cell.seed,
            "images": tally.images,
            "accuracy": round(tally.accuracy, 4),
            "class_mean_accuracy": round(100 * (records.class_mean(tally.confusion) or 0), 4),
            "images_per_second": round(tally.images / max(tally.seconds, 1e-9), 1),
            "file": cell.file,
        }
        typer.echo(json.dumps(line))


class Shown(BenchView):
    """What the table and the lines share: all the cells, the pace, and the time left."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__()
        self.cells = cells
        self.began = time.monotonic()
        self.old = 0.0
        self.images = 0
        self.titles = list(dict.fromkeys(cell.title for cell in cells))
        self.published = _published(cells)

    def start(self, cell: Cell, so_far: RunRecord | None) -> None:
        """Work that an earlier run did tells nothing about this one's pace."""
        super().start(cell, so_far)
        self.old += self._done(cell)

    def batch(self, cell: Cell, record: BatchRecord) -> None:
        """Count its images for the pace."""
        super().batch(cell, record)
        self.images += len(record.predicted)

    @property
    def pace(self) -> float:
        """Images a second, over all processes."""
        return self.images / max(time.monotonic() - self.began, 1e-9)

    def left(self) -> str:
        """The time left at the pace so far."""
        done = sum(map(self._done, self.tallies))
        pace = (done - self.old) / max(time.monotonic() - self.began, 1e-9)
        if pace <= 0:
            return "?"
        seconds = (sum(cell.work for cell in self.cells) - done) / pace
        return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"

    def _done(self, cell: Cell) -> float:
        return cell.work * self.tallies[cell].images / cell.images


class Lines(Shown):
    """A line for each finished cell, and the table at the end."""

    def finish(self, cell: Cell) -> None:
        """Print the cell's accuracy and pace."""
        super().finish(cell)
        tally = self.tallies[cell]
        pace = tally.images / max(tally.seconds, 1e-9)
        seed = f" seed {cell.seed}" if len({cell.seed for cell in self.cells}) > 1 else ""
        typer.echo(
            f"{cell.column:20s} {cell.title:18s}{seed} {tally.accuracy:6.2f} %  "
            f"{tally.images} images, {pace:.0f}/s, {self.left()} left"
        )

    def __exit__(self, *error: object) -> None:
        if self.tallies:
            from rich.console import Console

            Console().print(whole(self))


class LiveTable(Shown):
    """The table, which fills while the cells run."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        super().__init__(cells)
        self.live = Live(get_renderable=lambda: whole(self), refresh_per_second=2)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()


def whole(view: Shown) -> Group:
    """The table, and below it where the published numbers come from or why there are none."""
    line = view.published.line
    return Group(table(view), *[Text(line)] * bool(line))


def table(view: Shown) -> Table:
    """Accuracy of each method on each domain so far, and the mean over finished domains."""
    titles = view.titles
    columns = list(dict.fromkeys(cell.column for cell in view.cells))
    tall = len(titles) > MOST_ACROSS or any(cell.variant for cell in view.cells)
    shown = Table(
        box=SIMPLE_HEAD, caption=_caption(view), show_footer=not tall and len(columns) > 1
    )
    (_fill_tall if tall else _fill)(shown, view, titles, columns)
    return shown


def _caption(view: Shown) -> str:
    done = sum(tally.done for tally in view.tallies.values())
    pace = f"{view.pace:.0f} images/s" if view.images else "nothing was left to do"
    if done == len(view.cells):
        return f"accuracy in %; {pace}"
    return f"accuracy in % so far; {pace}, {view.left()} left"


def _published(cells: Sequence[Cell]) -> Beside:
    """What was published for the methods, in their order; nothing for the variants of a sweep."""
    systems = {cell.title: (cell.identity["method"], cell.identity["options"]) for cell in cells}
    if any(cell.variant for cell in cells):
        return Beside([None] * len(systems), [""] * len(systems), "")
    domains = [domain for cell in cells for domain in cell.domains]
    levels = sorted({domain.severity for domain in domains if domain.severity is not None})
    facts = {**cells[0].identity["setting"], "severities": levels}
    corruptions = {domain.corruption for domain in domains}
    return beside(facts, corruptions, [*systems.values()], (*own(), *TABLES))


def _fill(shown: Table, view: Shown, titles: list[str], columns: list[str]) -> None:
    """Methods across, domains down."""
    common = [c for c in columns if all(_finished(view, c, title) for title in titles)]
    shown.add_column(escape(view.cells[0].identity["spec"]), footer=f"mean of {len(common)}")
    for title in titles:
        shown.add_column(escape(title), justify="right", footer=_mean(view, common, title))
    for column in columns:
        shown.add_row(column, *(_entry(view, column, title) for title in titles))
    if len(columns) == 1:
        shown.add_row("class mean", *(_class_mean(view, title) for title in titles))
    if view.published.any:
        shown.add_section()
        shown.add_row("published", *map(_percent, view.published.numbers))


def _fill_tall(shown: Table, view: Shown, titles: list[str], columns: list[str]) -> None:
    """Many methods, or the variants of a sweep, down; domains across."""
    shown.add_column(escape(view.cells[0].identity["spec"]))
    others = view.published.any
    for column in [*columns, f"mean of {len(columns)}", *["published"] * others]:
        shown.add_column(column, justify="right")
    for title, number in zip(titles, view.published.numbers, strict=True):
        whole = all(_finished(view, column, title) for column in columns)
        mean = _mean(view, columns, title) if whole else ""
        line = [*(_entry(view, column, title) for column in columns), mean]
        shown.add_row(escape(title), *line, *[_percent(number)] * others)


def _percent(published: float | None) -> str:
    return "-" if published is None else f"{100 * published:.1f}"


def _mean(view: Shown, columns: list[str], title: str) -> str:
    values = [_accuracy(view, column, title) for column in columns]
    return f"{sum(values) / len(values):.2f}" if values else ""


def _cells(view: Shown, column: str, title: str) -> list[Cell]:
    return [c for c in view.cells if (c.column, c.title) == (column, title)]


def _finished(view: Shown, column: str, title: str) -> bool:
    return all(c in view.tallies and view.tallies[c].done for c in _cells(view, column, title))


def _accuracy(view: Shown, column: str, title: str) -> float:
    tallies = [view.tallies[c] for c in _cells(view, column, title) if c in view.tallies]
    return 100 * sum(t.right for t in tallies) / max(sum(t.images for t in tallies), 1)


def _entry(view: Shown, column: str, title: str) -> str:
    if not any(c in view.tallies for c in _cells(view, column, title)):
        return ""
    sign = "" if _finished(view, column, title) else " …"
    return f"{_accuracy(view, column, title):.2f}{sign}"


def _class_mean(view: Shown, title: str) -> str:
    """Over all seeds of the method; where classes differ in size it is not the accuracy."""
    counts: Confusion = Counter()
    for cell, tally in view.tallies.items():
        if cell.title == title:
            counts += tally.confusion
    mean = records.class_mean(counts)
    return "" if mean is None else f"{100 * mean:.2f}"
