"""What happens along the stream: one value a batch, averaged over runs, smoothed for the eye."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.records import BatchRecord
from tapr.reports.results import Setting, System, batches

_POINTS = 12  # a stream of more batches than this is smoothed to about so many


class Curve(NamedTuple):
    """A line of a figure."""

    x: NDArray[np.float64]  # images seen at the middle of each batch
    y: NDArray[np.float64]


def accuracy(batch: BatchRecord) -> float | None:
    """The share of a batch that was predicted right."""
    return batch.correct / len(batch.predicted) if batch.labels and batch.predicted else None


def term(name: str) -> Callable[[BatchRecord], float | None]:
    """The reader of a loss term; what is not finite is left out."""

    def read(batch: BatchRecord) -> float | None:
        value = batch.terms.get(name)
        return value if value is not None and np.isfinite(value) else None

    return read


def terms(setting: Setting) -> list[str]:
    """The loss terms that occur, in the order of their first occurrence."""
    found = (name for run in setting.runs for batch in run.batches for name in batch.terms)
    return list(dict.fromkeys(found))


def curve(system: System, read: Callable[[BatchRecord], float | None]) -> Curve | None:
    """The mean over the system's runs, batch by batch, for as long as all of them go on."""
    lines = []
    for run in system.runs:
        values = [read(batch) for batch in batches(run)]
        sizes = np.array([len(batch.predicted) for batch in batches(run)], np.float64)
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            lines.append((np.cumsum(sizes) - sizes / 2, np.array(known, np.float64)))
    if not lines:
        return None
    shortest = min(len(y) for _, y in lines)
    mean = np.mean([y[:shortest] for _, y in lines], axis=0)
    return Curve(lines[0][0][:shortest], smooth(mean))


def smooth(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """A centred moving average; at the ends over what is there.

    >>> smooth(np.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    width = max(1, len(values) // _POINTS) | 1  # odd
    kernel = np.ones(width)
    weights = np.convolve(np.ones(len(values)), kernel, "same")
    return np.asarray(np.convolve(values, kernel, "same") / weights, np.float64)


def boundaries(setting: Setting) -> list[tuple[float, str]]:
    """Where each domain of one continuing stream begins, in images."""
    if setting.single or not setting.runs:
        return []
    longest = max(setting.runs, key=lambda run: run.images)
    found: list[tuple[float, str]] = []
    seen = 0
    for batch in batches(longest):
        if not found or found[-1][1] != batch.domain:
            found.append((float(seen), batch.domain))
        seen += len(batch.predicted)
    return found
