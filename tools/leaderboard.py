"""Write the committed leaderboard: `python tools/leaderboard.py [RUNS]`, at the root.

From the CSVs in `results/` it gathers all methods that ran at full size (2,000 images of each of
the 15 corruptions at severity 5, batches of 200) into `results/leaderboard/full.csv`, a table and a
figure, and puts the table into `docs/leaderboard.md`. With RUNS, the records of `tapr bench
leaderboard --size medium`, it also makes the CSVs of the other streams and the page to explore; the
records themselves are too large to commit.
"""

import csv
import io
import re
import sys
from pathlib import Path
from typing import NamedTuple

from tapr import files, names
from tapr.cli import app
from tapr.methods.own import method
from tapr.reports import export, results
from tapr.reports.drawing import need, style, svg
from tapr.reports.leaderboard import leaderboard
from tapr.reports.metrics import METRICS
from tapr.reports.tables import table

RESULTS = Path("results")
NUMBERS = RESULTS / "leaderboard"
PAGE = Path("docs", "leaderboard.md")
FIGURE = Path("docs", "images", "leaderboard.svg")
EXPLORE = Path("docs", "explore.html")
METRIC_FILES = ("accuracy", "calibration", "nll", "worst-domain", "time")
# Of several rows of a method in a stream the first file's counts.
FILES = (
    *("steady", "field-one", "field-one-continual", "field-two", "cifar10c", "steady-continual"),
    *("steady-cifar100", "field-one-cifar100", "field-one-cifar100-continual"),
)
FULL = {"order": "", "batch_size": "200", "severity": "5", "domain": "mean of 15"}
IMAGES = 30_000
STREAMS = {"each": "reset each", "continual": "continual"}
MODELS = ("cifar10-small", "cifar100-small")
SHOWN = {*names.METHODS, "pest-randaugment", "pest-augmix"}  # variants are in the CSV alone


class Measured(NamedTuple):
    """The accuracy of a method in a stream, and the file it comes from."""

    model: str
    stream: str
    method: str
    accuracy: float
    low: float
    high: float
    images: int
    file: str


def gathered() -> list[Measured]:
    """Every method at full size, once for each model and stream."""
    found: dict[tuple[str, str, str], Measured] = {}
    for name in FILES:
        path = RESULTS / f"{name}.csv"
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            whole = all(row[key] == value for key, value in FULL.items())
            if whole and int(row["images"]) == IMAGES and row["protocol"] in STREAMS:
                key = row["model"], STREAMS[row["protocol"]], row["method"]
                value, low, high = (float(row[column]) for column in ("accuracy", "low", "high"))
                found.setdefault(key, Measured(*key, value, low, high, IMAGES, path.name))
    return sorted(found.values(), key=lambda each: (*each[:2], -each.accuracy))


def as_csv(measured: list[Measured]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Measured._fields)
    writer.writerows(measured)
    return text.getvalue()


def title(label: str) -> str:
    """A method's name for people, and what a label adds to it.

    >>> title("pest-augmix"), title("source")
    ('PEST (augmix)', 'unadapted')
    """
    base, _, rest = label.partition("-")
    kind = method(base)
    name = (kind.title or kind.__name__) if kind.adapts else "unadapted"
    return f"{name} ({rest})" if rest else name


def as_markdown(measured: list[Measured]) -> str:
    """Methods down, models and streams across; the best of a column is bold."""
    columns = [(model, stream) for model in MODELS for stream in STREAMS.values()]
    cells = {(m.model, m.stream, m.method): m for m in measured}
    best = {
        column: max(m.accuracy for m in measured if m[:2] == column and m.method in SHOWN)
        for column in columns
    }
    lines = [["method", *(f"{model}, {stream}" for model, stream in columns)]]
    lines.append(["---", *["---:"] * len(columns)])
    for label in dict.fromkeys(m.method for m in measured if m.method in SHOWN):
        line = [title(label)]
        for column in columns:
            cell = cells.get((*column, label))
            text = f"{100 * cell.accuracy:.1f}" if cell else "-"
            line.append(f"**{text}**" if cell and cell.accuracy == best[column] else text)
        lines.append(line)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def figure(measured: list[Measured]) -> str:
    """Dots with their intervals, a panel for each stream of the first model."""
    shown = [m for m in measured if m.model == MODELS[0] and m.method in SHOWN]
    streams = list(STREAMS.values())
    labels = list(dict.fromkeys(m.method for m in shown if m.stream == streams[0]))[::-1]
    with style():
        made = need("matplotlib.figure").Figure((8.5, 0.24 * len(labels) + 1), layout="constrained")
        for axes, stream in zip(
            made.subplots(1, 2, sharex=True, sharey=True), streams, strict=True
        ):
            own = [m for m in shown if m.stream == stream and m.method in labels]
            places = [labels.index(m.method) for m in own]
            values = [100 * m.accuracy for m in own]
            reach = [[100 * (m.accuracy - m.low) for m in own]]
            reach.append([100 * (m.high - m.accuracy) for m in own])
            axes.errorbar(values, places, xerr=reach, fmt="o", markersize=4, color="#0b6e99")
            axes.set(title=stream, xlabel="accuracy, %")
            axes.set_yticks(range(len(labels)), [title(label) for label in labels])
            axes.grid(axis="x")
        return svg(made)


def filled(page: str, mark: str, made: str) -> str:
    """The documentation's page with this table between two marks."""
    between = rf"(?<=<!-- {mark} -->\n).*?(?=<!-- end)"
    return re.sub(between, lambda _: f"\n{made}\n", page, count=1, flags=re.DOTALL)


def write(path: Path, text: str) -> None:
    with files.atomic(path) as part:
        part.write_text(text, encoding="utf-8")


def streams(runs: Path) -> None:
    """The other streams, from records: CSVs, the table of ranks, and the page to explore."""
    found = results.read([runs])
    for name in METRIC_FILES:
        tables = [table(setting, METRICS[name]) for setting in found.settings]
        write(NUMBERS / f"streams-{name}.csv", export.to_csv(tables))
    board = leaderboard([table(setting) for setting in found.settings])
    assert board, f"no two methods in two settings in {runs}"
    made = export.to_markdown([], board).partition("\n\n")[2].strip() + "\n"
    write(NUMBERS / "streams.md", made)
    write(PAGE, filled(PAGE.read_text(encoding="utf-8"), "streams", made))
    app(["report", str(runs), "--no-examples", "-o", str(EXPLORE)], standalone_mode=False)


def main() -> None:
    measured = gathered()
    made = as_markdown(measured)
    write(NUMBERS / "full.csv", as_csv(measured))
    write(NUMBERS / "table.md", made)
    write(PAGE, filled(PAGE.read_text(encoding="utf-8"), "table", made))
    write(FIGURE, figure(measured))
    if sys.argv[1:]:
        streams(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
