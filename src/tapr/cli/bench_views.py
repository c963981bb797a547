"""What `tapr bench` shows while it runs: a live table, plain lines, JSON, or nothing."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import typer
from rich.box import SIMPLE_HEAD
from rich.live import Live
from rich.table import Table

from tapr import records

if TYPE_CHECKING:
    from tapr.records import BatchRecord, Confusion, RunRecord
    from tapr.runs.bench import Bench, Cell


@dataclass
class Tally:
    """How far a cell is."""

    right: int = 0
    images: int = 0
    seconds: float = 0.0
    done: bool = False
    confusion: Confusion = field(default_factory=Counter)

    def add(self, record: BatchRecord) -> None:
        """Count a batch."""
        self.right += record.correct
        self.images += len(record.predicted)
        self.seconds += record.seconds
        self.confusion.update(records.confusion([record]))

    @property
    def accuracy(self) -> float:
        """In percent, so far."""
        return 100 * self.right / max(self.images, 1)


class Silent:
    """Shows nothing, and keeps count for those who do."""

    def __init__(self) -> None:
        self.tallies: dict[Cell, Tally] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self, cell: Cell, so_far: RunRecord | None) -> None:
        """A cell begins, or goes on."""
        tally = self.tallies[cell] = Tally()
        for record in so_far.batches if so_far else []:
            tally.add(record)

    def batch(self, cell: Cell, record: BatchRecord) -> None:
        """A batch is done."""
        self.tallies[cell].add(record)

    def finish(self, cell: Cell) -> None:
        """A cell is done."""
        self.tallies[cell].done = True


class JsonLines(Silent):
    """A JSON line for each finished cell."""

    def finish(self, cell: Cell) -> None:
        """Print it."""
        super().finish(cell)
        tally = self.tallies[cell]
        line = {
            "domain": cell.column,
            "method": cell.label,
            "seed": cell.seed,
            "images": tally.images,
            "accuracy": round(tally.accuracy, 4),
            "class_mean_accuracy": round(100 * (records.class_mean(tally.confusion) or 0), 4),
            "images_per_second": round(tally.images / max(tally.seconds, 1e-9), 1),
            "file": cell.file,
        }
        typer.echo(json.dumps(line))


class Shown(Silent):
    """What the table and the lines share: the bench, and the time left."""

    def __init__(self, bench: Bench) -> None:
        super().__init__()
        self.bench = bench
        self.began = time.monotonic()
        self.work = {cell: _work(bench, cell) for cell in bench.cells}
        self.old = 0.0

    def start(self, cell: Cell, so_far: RunRecord | None) -> None:
        """Work that an earlier run did tells nothing about this one's pace."""
        super().start(cell, so_far)
        self.old += self._done(cell)

    def left(self) -> str:
        """The time left at the pace so far."""
        done = sum(map(self._done, self.tallies))
        pace = (done - self.old) / max(time.monotonic() - self.began, 1e-9)
        if pace <= 0:
            return "?"
        seconds = (sum(self.work.values()) - done) / pace
        return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"

    def _done(self, cell: Cell) -> float:
        images = sum(len(domain) for domain in cell.domains)
        return self.work[cell] * min(self.tallies[cell].images / images, 1)


class Lines(Shown):
    """A line for each finished cell."""

    def finish(self, cell: Cell) -> None:
        """Print it."""
        super().finish(cell)
        tally = self.tallies[cell]
        pace = tally.images / max(tally.seconds, 1e-9)
        seed = f" seed {cell.seed}" if len(self.bench.spec.seeds) > 1 else ""
        typer.echo(
            f"{cell.column:20s} {cell.label:18s}{seed} {tally.accuracy:6.2f} %  "
            f"{tally.images} images, {pace:.0f}/s, {self.left()} left"
        )

    def __exit__(self, *error: object) -> None:
        if self.tallies:
            from rich.console import Console

            Console().print(table(self))


class LiveTable(Shown):
    """The table, filling."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench)
        self.live = Live(get_renderable=lambda: table(self), refresh_per_second=2)

    def __enter__(self) -> Self:
        self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.live.stop()


def table(view: Shown) -> Table:
    """Accuracy of each method on each domain so far; the mean over finished domains below."""
    bench = view.bench
    done = all(tally.done for tally in view.tallies.values()) and len(view.tallies) == len(
        bench.cells
    )
    caption = "accuracy in %" if done else f"accuracy in % so far; {view.left()} left"
    labels = list(bench.spec.methods)
    shown = Table(box=SIMPLE_HEAD, caption=caption, show_footer=True)
    columns = list(dict.fromkeys(cell.column for cell in bench.cells))
    common = [c for c in columns if all(_finished(view, c, label) for label in labels)]
    shown.add_column(bench.spec.name, footer=f"mean of {len(common)}")
    for label in labels:
        values = [_accuracy(view, column, label) for column in common]
        mean = f"{sum(values) / len(values):.2f}" if values else ""
        shown.add_column(label, justify="right", footer=mean)
    for column in columns:
        shown.add_row(column, *(_entry(view, column, label) for label in labels))
    if len(columns) == 1:
        shown.add_row("class mean", *(_class_mean(view, label) for label in labels))
    return shown


def _cells(view: Shown, column: str, label: str) -> list[Cell]:
    return [c for c in view.bench.cells if (c.column, c.label) == (column, label)]


def _finished(view: Shown, column: str, label: str) -> bool:
    return all(c in view.tallies and view.tallies[c].done for c in _cells(view, column, label))


def _accuracy(view: Shown, column: str, label: str) -> float:
    tallies = [view.tallies[c] for c in _cells(view, column, label) if c in view.tallies]
    return 100 * sum(t.right for t in tallies) / max(sum(t.images for t in tallies), 1)


def _entry(view: Shown, column: str, label: str) -> str:
    if not any(c in view.tallies for c in _cells(view, column, label)):
        return ""
    sign = "" if _finished(view, column, label) else " …"
    return f"{_accuracy(view, column, label):.2f}{sign}"


def _class_mean(view: Shown, label: str) -> str:
    """Over all seeds of the method; where classes differ in size it is not the accuracy."""
    counts: Confusion = Counter()
    for cell, tally in view.tallies.items():
        if cell.label == label:
            counts += tally.confusion
    mean = records.class_mean(counts)
    return "" if mean is None else f"{100 * mean:.2f}"


def _work(bench: Bench, cell: Cell) -> float:
    """The cell's cost in forward passes of an image; a backward counts as two."""
    forward, backward = bench.passes[cell.label]
    return (forward + 2 * backward) * sum(len(domain) for domain in cell.domains)
