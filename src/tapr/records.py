"""What a run writes down: one JSON line for its beginning, one for each batch, one for its end.

A run is one method on one stream with one seed. Its file only ever grows, so that a kill loses at
most the batch in flight; a line that cannot be read is reported and the rest is still there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tapr.errors import DataError

FORMAT = "tapr-run-1"


@dataclass(frozen=True)
class BatchRecord:
    """What happened to one batch."""

    number: int  # 0, 1, ... along the stream
    domain: str  # e.g. "fog-5"
    images: list[int]  # [B] their numbers in the data set
    labels: list[int] | None  # [B]
    predicted: list[int]  # [B]
    loss: float | None
    terms: dict[str, float]
    steps: int
    kept: int
    refused: int
    forward: int  # images through the model
    backward: int
    seconds: float  # of adapting and predicting, without reading or corrupting

    @property
    def correct(self) -> int:
        """Images predicted right."""
        return sum(a == b for a, b in zip(self.predicted, self.labels or [], strict=False))


@dataclass(frozen=True)
class RunRecord:
    """A run as far as it has come."""

    cell: Mapping[str, Any]  # the whole effective spec: data, model, method, protocol, seed
    environment: Mapping[str, Any]  # versions, commit, machine, when it began
    batches: list[BatchRecord] = field(default_factory=list)
    end: Mapping[str, Any] | None = None  # peak memory, when it ended; None while unfinished

    @property
    def images(self) -> int:
        """Images predicted so far."""
        return sum(len(batch.predicted) for batch in self.batches)

    @property
    def accuracy(self) -> float | None:
        """The share predicted right so far; None without labels or images."""
        known = [batch for batch in self.batches if batch.labels is not None]
        total = sum(len(batch.predicted) for batch in known)
        return sum(batch.correct for batch in known) / total if total else None

    @property
    def seconds(self) -> float:
        """Time spent adapting and predicting."""
        return sum(batch.seconds for batch in self.batches)


Confusion = Counter[tuple[int, int]]  # (label, predicted) -> images


def confusion(batches: Iterable[BatchRecord]) -> Confusion:
    """How often images of a class were predicted as each class."""
    return Counter(
        pair for batch in batches for pair in zip(batch.labels or (), batch.predicted, strict=False)
    )


def class_accuracies(counts: Confusion) -> dict[int, float]:
    """The share predicted right of each class that has images, in the order of the classes.

    >>> class_accuracies(Counter({(0, 0): 3, (0, 1): 1, (1, 1): 5}))
    {0: 0.75, 1: 1.0}
    """
    images: Counter[int] = Counter()
    for (label, _), count in counts.items():
        images[label] += count
    return {label: counts[label, label] / images[label] for label in sorted(images)}


def class_mean(counts: Confusion) -> float | None:
    """The mean of the classes' accuracies, in which a rare class weighs as much as a common one."""
    shares = class_accuracies(counts).values()
    return sum(shares) / len(shares) if shares else None


def setting(cell: Mapping[str, Any], key: str, default: Any = None) -> Any:
    """An option of the run's method or its augmentation, or a fact of its spec.

    >>> setting({"batch_size": 8, "recipe": {"lr": 0.1}}, "lr")
    0.1
    """
    recipe = cell.get("recipe", {})
    for table in (recipe, recipe.get("augmentation_options") or {}, cell):
        if key in table:
            return table[key]
    return default


def line(kind: str, content: Mapping[str, Any]) -> str:
    """One line of a run's file.

    >>> line("end", {"peak_mib": 5})
    '{"kind":"end","peak_mib":5}\\n'
    """
    return json.dumps({"kind": kind, **content}, separators=(",", ":"), allow_nan=True) + "\n"


def begin(cell: Mapping[str, Any], environment: Mapping[str, Any]) -> str:
    """The first line."""
    return line("run", {"format": FORMAT, "cell": cell, "environment": environment})


def batch_line(record: BatchRecord) -> str:
    """The line of a batch."""
    return line("batch", asdict(record))


def read(path: Path) -> tuple[RunRecord, list[str]]:
    """A run's file, and a sentence for every line in it that cannot be read."""
    problems: list[str] = []
    run: RunRecord | None = None
    end: Mapping[str, Any] | None = None
    batches: list[BatchRecord] = []
    for number, content in _lines(path, problems):
        try:
            kind = content.pop("kind")
            if kind == "run":
                if content["format"] != FORMAT:
                    raise DataError(f"{path}: expected format {FORMAT}, got {content['format']!r}")
                run = RunRecord(content["cell"], content["environment"])
            elif kind == "batch":
                batches.append(BatchRecord(**content))
            elif kind == "end":
                end = content
            else:
                raise ValueError(f"unknown kind {kind!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problems.append(f"{path}, line {number}: not a record of a run: {error}")
    if run is None:
        raise DataError(f"{path}: expected the record of a run, whose first line says what it is")
    return RunRecord(run.cell, run.environment, batches, end), problems


def _lines(path: Path, problems: list[str]) -> Iterator[tuple[int, Any]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    for number, raw in enumerate(text.splitlines(), 1):
        try:
            yield number, json.loads(raw)
        except ValueError as error:
            problems.append(f"{path}, line {number}: not JSON: {error}")
