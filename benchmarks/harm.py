"""The harm matrix: what the records of `tapr bench harm` say about the guard's promise.

    tapr bench harm --out runs/harm
    python -m benchmarks.harm runs/harm [--csv results/harm.csv]

Writes a line for each method, stream and guard, and prints a Markdown table for each model. The
promise is that with the guard acting, accuracy is never more than 1 point below the unadapted
model's over a stream, nor more than 3 over any 1,000 images in a row; `misses` says where it is
broken. Images that show nothing have no labels, and count for nothing but what they do to the
adapter.
"""

import argparse
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr import files, records
from tapr.records import RunRecord
from tapr.reports import results

RESULTS = Path(__file__).parents[1] / "results" / "harm.csv"
POINTS, IN_A_ROW = 1.0, 3.0  # that accuracy may lie below the unadapted model's
ROW = 1000  # images

_ORDERS = {"sorted": "sorted, ", "shift": "other classes from the middle, "}
_STREAMS = {
    "mixed": "half of each batch corrupted",
    "alternating": "another domain every batch",
}


class Line(NamedTuple):
    """A method on a stream, beside the unadapted model."""

    model: str
    images: int
    stream: str
    method: str
    guard: str
    source: float  # accuracy, in %
    accuracy: float
    worst_1000: float  # largest fall below the unadapted model over so many images in a row, points
    watch: int  # batches, as the next four
    harm: int
    answered: int
    unlearnt: int
    restarted: int
    batches: int
    misses: str


def stream(run: RunRecord) -> str:
    """The name of a run's stream."""
    facts = run.setting
    domain = run.shifts[0].name
    if "blank" in facts:
        return f"{facts['blank']}, then {domain}"
    if "clean" in facts:
        return f"clean, {domain}, clean"
    if "rounds" in facts:
        return f"{facts['rounds']} visits of {len(run.shifts)} corruptions"
    if "only_class" in facts:
        return f"one class, {domain}"
    size = facts["batch_size"]
    name = _STREAMS.get(facts["protocol"], _ORDERS.get(facts.get("order", ""), "") + domain)
    return name if size >= 10 else f"batch {size}, {name}"


def right(run: RunRecord) -> NDArray[np.float64]:
    """Which of the labelled images were predicted right, along the stream."""
    pairs = [(batch.labels, batch.predicted) for batch in results.batches(run)]
    hits = [np.array(labels) == np.array(said) for labels, said in pairs if labels is not None]
    return np.concatenate(hits).astype(np.float64)


def worst(own: NDArray[np.float64], source: NDArray[np.float64]) -> float:
    """The largest fall below the unadapted model over a thousand images in a row, in points."""
    lost = np.cumsum(np.concatenate([[0.0], source - own]))
    images = min(ROW, len(own))
    return float(100 * (lost[images:] - lost[:-images]).max() / images)


def lines(runs: Sequence[RunRecord]) -> Iterator[Line]:
    """A line for each finished run that has the unadapted model beside it."""
    finished = [run for run in runs if results.whole(run)]
    beside = {_place(run): right(run) for run in finished if not run.adapts}
    for run in finished:
        if not run.adapts or _place(run) not in beside:
            continue
        own, source = right(run), beside[_place(run)]
        told = [batch.health for batch in run.batches if batch.health]
        seen = Counter(health[key] for health in told for key in ("verdict", "action"))
        base, accuracy = round(100 * source.mean(), 2), round(100 * own.mean(), 2)
        fall = round(worst(own, source), 2)
        yield Line(
            model=str(run.setting["model"]),
            images=len(own),
            stream=stream(run),
            method=run.label,
            guard=str(run.recipe.get("guard", "watch")),
            source=base,
            accuracy=accuracy,
            worst_1000=fall,
            **{w: seen[w] for w in ("watch", "harm", "answered", "unlearnt", "restarted")},
            batches=len(run.batches),
            misses="yes" if base - accuracy > POINTS or fall > IN_A_ROW else "",
        )


def _place(run: RunRecord) -> str:
    return repr((sorted(run.setting.items(), key=str), run.shifts, run.seed))


def matrix(found: Sequence[Line]) -> Iterator[str]:
    """A Markdown table for each model, a row for each stream: guard off → guard acting."""
    for model, most in dict.fromkeys((line.model, _size(line)) for line in found):
        mine = [line for line in found if (line.model, _size(line)) == (model, most)]
        methods = [*dict.fromkeys(line.method for line in mine)]
        yield f"`{model}`, {most}:\n"
        yield f"| stream | images | unadapted | {' | '.join(methods)} |"
        yield f"|---|---:|---:|{'---:|' * len(methods)}"
        for name in dict.fromkeys(line.stream for line in mine):
            row = {(n.method, n.guard): n for n in mine if n.stream == name}
            first = next(iter(row.values()))
            cells = [_cell(row.get((m, "off")), row.get((m, "act"))) for m in methods]
            yield f"| {name} | {first.images:,} | {first.source:.1f} | {' | '.join(cells)} |"
        yield ""


def _size(line: Line) -> str:
    return "slow methods" if line.method.startswith(("pest", "cotta", "memo", "ttt")) else "others"


def _cell(off: Line | None, act: Line | None) -> str:
    parts = ["" if each is None else f"{each.accuracy:.1f}" for each in (off, act)]
    broken = " **!**" if act is not None and act.misses else ""
    return " → ".join(parts) + broken if any(parts) else ""


def summary(found: Sequence[Line]) -> Iterator[str]:
    """How many pairs of method and stream break the promise, and which with the guard acting."""
    for guard in ("off", "act"):
        mine = [line for line in found if line.guard == guard]
        yield f"guard {guard}: {sum(bool(n.misses) for n in mine)} of {len(mine)} break the promise"
    off = {(n.model, n.images, n.stream, n.method): n for n in found if n.guard == "off"}
    lost = {
        place: off[place].accuracy - n.accuracy
        for n in found
        if n.guard == "act" and (place := (n.model, n.images, n.stream, n.method)) in off
    }
    gained = [place for place in lost if off[place].accuracy > off[place].source]
    yield f"gains that lost more than 0.3 points: {sum(lost[p] > 0.3 for p in gained)} of" + (
        f" {len(gained)}"
    )
    for n in found:
        if n.guard == "act" and n.misses:
            yield f"  {n.model} {n.stream} {n.method}: {n.source} {n.accuracy} {n.worst_1000}"
    for p in gained:
        if lost[p] > 0.3:
            yield f"  gain lost: {' '.join(map(str, p))}: {lost[p]:.2f} of " + (
                f"{off[p].accuracy - off[p].source:.2f}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    given = parser.parse_args()
    read = records.load(given.runs)
    found = sorted(lines(read.runs), key=lambda line: (line.model, line.stream, line.method))
    with files.atomic(given.csv) as part, part.open("w", newline="") as file:
        writer: Any = csv.writer(file)
        writer.writerows([Line._fields, *found])
    print(*read.problems, *matrix(found), *summary(found), sep="\n")


if __name__ == "__main__":
    main()
