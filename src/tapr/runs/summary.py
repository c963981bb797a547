"""The summary of a folder's predictions: what adaptation changed, and signs of a collapse.

A collapsing model forgets along the stream how to classify. We therefore look for the signs in the
last part of the stream, and compare with the unadapted model on the same images. The thresholds lie
between streams of CIFAR-10 under each of 15 corruptions that gained accuracy (1,000 to 10,000
images, all methods with their published learning rates), and Tent at 100 times its own, which ended
near half of that.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from tapr.errors import DataError
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


SIGNS = {"": " ", "ok": ".", "watch": "+", "harm": "#"}  # not compared, and the verdicts
ACTS = {"": " ", "answered": "a", "unlearnt": "u", "restarted": "r"}  # what the guard did
STRIP = 60  # the most signs of a strip
PARTS = 4  # parts of a stream; the first and the last are compared
ENOUGH = 200  # images in a part: then chance alone moves a share by 0.04 at most
FEW = 100  # with fewer images than this, no sign is reported
TAKEOVER = 0.15  # growth of a class's share: 0.11 at most in the good streams, 0.17 to 0.25
# Entropy of the last quarter, in parts of the most possible and of the unadapted model's: 0.05 and
# 0.09 at most where PEST collapsed at 100 times its rate, 0.08 and 0.15 at least where it did not.
NO_ENTROPY = 0.07
SHRUNK = 0.12
FALL = 0.15  # of agreement, from the first part to the last: 0.08 at most, 0.16

Numbers = NDArray[np.float32]
Columns = Mapping[str, Numbers]


@dataclass(frozen=True)
class Summary:
    """The numbers of a run; of a pair, the first is the unadapted model's (None: not compared)."""

    images: int  # predicted
    failed: int  # not read, or not predicted
    refused: int  # steps rolled back by the guard
    changed: int | None  # predictions other than the unadapted model's
    agreement: tuple[float, float] | None  # with the unadapted model, in the first and last part
    entropy: tuple[float | None, float]  # mean, in nats
    most_entropy: float  # the highest possible with this number of classes
    confidence: tuple[float | None, float]  # mean
    known: int  # images whose class is known
    accuracy: tuple[float | None, float] | None  # over those
    classes: list[tuple[str, int | None, int | None]]  # name, and how many images are predicted so
    warnings: list[str]
    strip: str = ""  # health along the stream: a sign for each part of it, see `SIGNS`
    acts: str = ""  # what the guard did along the stream, see `ACTS`
    guard: dict[str, int] = field(default_factory=dict)  # what the guard did, to how many images


def summarise(rows: Iterable[Row], names: Sequence[str], refused: int = 0) -> Summary:
    """Sum up the rows of a run; `names` has a name for every class."""
    failed, table, told = _columns(rows)
    both = ~np.isnan(table["source_predicted"])  # the unadapted model's logits may not be finite
    pairs = {name: column[both] for name, column in table.items()}
    compared = bool(both.any()) or not len(both)
    same = pairs["source_predicted"] == pairs["predicted"]
    known = ~np.isnan(table["label"])
    return Summary(
        images=len(both),
        failed=failed,
        refused=refused,
        changed=int((~same).sum()) if compared else None,
        agreement=(_mean(same[_first(same)]), _mean(same[_last(same)])) if compared else None,
        entropy=_pair(table, pairs, "entropy", compared),
        most_entropy=round(math.log(len(names)), 4),
        confidence=_pair(table, pairs, "confidence", compared),
        known=int(known.sum()),
        accuracy=_accuracy(table, known, known & both) if known.any() else None,
        classes=list(
            zip(
                names,
                _counts(pairs["source_predicted"], names),
                _counts(table["predicted"], names),
                strict=True,
            )
        ),
        warnings=[*_refusals(refused), *(signs(pairs, names) if compared else ())],
        strip=_strip([words.partition(" ")[0] for words in told], SIGNS),
        acts=_strip([words.partition(" ")[2] for words in told], ACTS),
        guard=dict(Counter(words[1] for words in map(str.split, told) if len(words) > 1)),
    )


def read_summary(content: object, folder: Path) -> Summary:
    """The summary that an earlier run wrote into its folder."""
    try:
        return TypeAdapter(Summary).validate_python(content)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"]))
        raise DataError(f"the summary in {folder} is damaged: {key}: {problem['msg']}") from error


def _refusals(refused: int) -> Iterator[str]:
    if refused:
        yield f"{refused} steps were rolled back because they were not finite: try a smaller lr"


def _strip(told: Sequence[str], signs: Mapping[str, str]) -> str:
    """A sign for each part of a stream: the worst that was recorded there; "" without any."""
    order = list(signs)
    places = np.array([order.index(word) if word in order else 0 for word in told], int)
    parts = np.array_split(places, min(STRIP, len(told)) or 1)
    strip = "".join(signs[order[part.max()]] for part in parts if len(part))
    return strip if strip.strip() else ""


def _columns(rows: Iterable[Row]) -> tuple[int, dict[str, Numbers], list[str]]:
    """The number of failed rows, and of the others the numbers (NaN: unknown) and the health."""
    failed, columns = 0, {name: array("f") for name in FIELDS}
    told: list[str] = []
    for row in rows:
        if row.predicted is None:
            failed += 1
            continue
        for name, column in columns.items():
            value = getattr(row, name)
            column.append(math.nan if value is None else value)
        told.append(row.health or "")
    return failed, {name: np.array(column, np.float32) for name, column in columns.items()}, told


def _counts(predicted: Numbers, names: Sequence[str]) -> list[int | None]:
    if not len(predicted):
        return [None] * len(names)
    least, most = int(predicted.min()), int(predicted.max())
    if least < 0 or most >= len(names):
        wrong = least if least < 0 else most
        raise DataError(f"expected rows with classes from 0 to {len(names) - 1}, got {wrong}")
    return [*map(int, np.bincount(predicted.astype(int), minlength=len(names)))]


def _mean(values: NDArray[Any]) -> float:
    return round(float(values.mean()), 4) if len(values) else 0.0


def _pair(table: Columns, pairs: Columns, name: str, compared: bool) -> tuple[float | None, float]:
    return _mean(pairs[f"source_{name}"]) if compared else None, _mean(table[name])


def _accuracy(
    table: Columns, known: NDArray[np.bool_], compared: NDArray[np.bool_]
) -> tuple[float | None, float]:
    right = {name: table[name] == table["label"] for name in ("source_predicted", "predicted")}
    before = _mean(right["source_predicted"][compared]) if compared.any() else None
    return before, _mean(right["predicted"][known])


def signs(columns: Columns, names: Sequence[str]) -> list[str]:
    """A sentence for each sign of a collapse."""
    if len(columns["predicted"]) < FEW:
        return []
    checks = (_takeover, _no_entropy, _fall)
    return [sentence for check in checks for sentence in check(columns, names)]


def _takeover(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    """A warning if a class leads over the unadapted model or an even share, or over its start."""
    adapted, source = columns["predicted"], columns["source_predicted"]
    end = _shares(adapted[_last(adapted)], names), _shares(source[_last(source)], names)
    start = _shares(adapted[_first(adapted)], names), _shares(source[_first(source)], names)
    lead = end[0] - np.maximum(end[1], 1 / len(names))  # a model stuck on one class leaves others 0
    growth = np.maximum(lead, end[0] - start[0] - (end[1] - start[1]))
    top = int(growth.argmax())
    if growth[top] > TAKEOVER:
        yield (
            f"one class is taking over: {end[0][top]:.0%} of the last {_part(len(adapted)):,}"
            f" images are predicted as {names[top]} ({end[1][top]:.0%} by the unadapted model), of"
            f" the first ones {start[0][top]:.0%} ({start[1][top]:.0%})"
        )


def _no_entropy(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    late = slice(len(columns["entropy"]) * (PARTS - 1) // PARTS, None)  # a mean needs few images
    adapted, source = (float(columns[name][late].mean()) for name in ("entropy", "source_entropy"))
    if adapted < NO_ENTROPY * math.log(len(names)) and adapted < SHRUNK * source:
        yield (
            f"the entropy is near zero: {adapted:.4f} nats at the end, {source:.4f} with the"
            " unadapted model; the adapted model is certain about every image"
        )


def _fall(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    same = columns["predicted"] == columns["source_predicted"]
    start, end = float(same[_first(same)].mean()), float(same[_last(same)].mean())
    if start - end > FALL:
        yield (
            f"the agreement with the unadapted model falls along the stream, from {start:.0%} to"
            f" {end:.0%}: either the model or the images are drifting"
        )


def _first(values: NDArray[Any]) -> slice:
    """The first part of a stream; all of it when it is short."""
    return slice(0, _part(len(values)))


def _last(values: NDArray[Any]) -> slice:
    """The last part of a stream; all of it when it is short."""
    return slice(len(values) - _part(len(values)), len(values))


def _shares(predicted: Numbers, names: Sequence[str]) -> NDArray[np.float64]:
    return np.bincount(predicted.astype(int), minlength=len(names)) / len(predicted)


def _part(images: int) -> int:
    part = images // PARTS
    return part if part >= ENOUGH else images
