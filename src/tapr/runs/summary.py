"""What adaptation did to a folder's predictions, and whether it looks like a collapse."""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.runs.collapse import Columns, Numbers, first, last, signs
from tapr.runs.predictions import Row

FIELDS = (
    "predicted",
    "confidence",
    "entropy",
    "source_predicted",
    "source_confidence",
    "source_entropy",
    "label",
)


@dataclass(frozen=True)
class Summary:
    """What came of a run. Pairs are the unadapted model (None: not compared) and the adapted."""

    images: int  # predicted
    failed: int  # not read, or not predicted
    refused: int  # steps taken back by the guard
    changed: int | None  # predictions other than the unadapted model's
    agreement: tuple[float, float] | None  # with the unadapted model, in the first and last part
    entropy: tuple[float | None, float]  # mean, in nats
    most_entropy: float  # that so many classes allow
    confidence: tuple[float | None, float]  # mean
    known: int  # images whose class is known
    accuracy: tuple[float | None, float] | None  # over those
    classes: list[tuple[str, int | None, int | None]]  # name, and images called so
    warnings: list[str]


def summarise(rows: Iterable[Row], names: Sequence[str], refused: int = 0) -> Summary:
    """Sum up the rows of a run; `names` has a name for every class."""
    failed, table = _columns(rows)
    compared = not np.isnan(table["source_predicted"]).any()
    before, after = table["source_predicted"], table["predicted"]
    same = before == after
    known = ~np.isnan(table["label"])
    return Summary(
        images=len(after),
        failed=failed,
        refused=refused,
        changed=int((~same).sum()) if compared else None,
        agreement=(_mean(same[first(same)]), _mean(same[last(same)])) if compared else None,
        entropy=_pair(table, "entropy", compared),
        most_entropy=round(math.log(len(names)), 4),
        confidence=_pair(table, "confidence", compared),
        known=int(known.sum()),
        accuracy=_accuracy(table, known, compared) if known.any() else None,
        classes=list(zip(names, _counts(before, names), _counts(after, names), strict=True)),
        warnings=[*_refusals(refused), *(signs(table, names) if compared else ())],
    )


def _refusals(refused: int) -> Iterator[str]:
    if refused:
        yield f"{refused} steps were taken back because they were not finite: try a smaller lr"


def _columns(rows: Iterable[Row]) -> tuple[int, dict[str, Numbers]]:
    """The number of rows without a prediction, and the numbers of the others, NaN where unknown."""
    failed, columns = 0, {name: array("f") for name in FIELDS}
    for row in rows:
        if row.predicted is None:
            failed += 1
            continue
        for name, column in columns.items():
            value = getattr(row, name)
            column.append(math.nan if value is None else value)
    return failed, {name: np.array(column, np.float32) for name, column in columns.items()}


def _counts(predicted: Numbers, names: Sequence[str]) -> list[int | None]:
    known = predicted[~np.isnan(predicted)].astype(int)
    return np.bincount(known, minlength=len(names)).tolist() if len(known) else [None] * len(names)


def _mean(values: NDArray[Any]) -> float:
    return round(float(values.mean()), 4) if len(values) else 0.0


def _pair(table: Columns, name: str, compared: bool) -> tuple[float | None, float]:
    return _mean(table[f"source_{name}"]) if compared else None, _mean(table[name])


def _accuracy(
    table: Columns, known: NDArray[np.bool_], compared: bool
) -> tuple[float | None, float]:
    labels = table["label"][known]
    before, after = (
        _mean(table[name][known] == labels) for name in ("source_predicted", "predicted")
    )
    return before if compared else None, after
