"""The metrics by name: each turns a system's predictions on a domain into a number.

The metrics of a report, of `--metric` and of the page are the rows of `METRICS`. Each is defined on
one domain; several domains are combined by their mean, or by the worst of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tapr.errors import InputError
from tapr.records import TOP
from tapr.registry import Registry
from tapr.reports.results import Outcome

Floats = NDArray[np.float64]
BINS = 15
IN_A_ROW = 1000
NEAR = 0.01  # how near to the final accuracy: one point
_LABELS = "labels"
_TOP = "the five likeliest classes with their probabilities"


@dataclass(frozen=True)
class Metric:
    """A metric: what it means, which direction is better, how it is computed and written."""

    name: str
    title: str  # in a sentence
    of: Callable[[Outcome], float | None]  # None: the records lack its data, or it is undefined
    unit: Literal["%", "", "images", "ms", "MiB", "passes"] = "%"
    lower: bool = True  # whether less is better
    # A metric that is the mean of 0 or 1 for each image has these values here.
    shares: Callable[[Outcome], Floats | None] | None = None
    resampled: bool = True  # whether leaving images out gives an interval
    worst: bool = False  # several domains are combined by the worst; else by the mean
    needs: str = _LABELS  # what the records must hold

    def fold(self, values: Sequence[float]) -> float:
        """Combine the values of several domains into one."""
        worst = np.max if self.lower else np.min
        return float(worst(values) if self.worst else np.mean(values))

    def over(self, outcomes: Sequence[Outcome]) -> float | None:
        """The metric over the domains of these outcomes; None when one of them lacks it."""
        found = [self.of(outcome) for outcome in outcomes]
        known = [value for value in found if value is not None]
        return self.fold(known) if known and len(known) == len(found) else None

    def better(self, value: float, than: float) -> bool:
        """Whether a value is better than another."""
        return value < than if self.lower else value > than

    def best(self, values: Sequence[float]) -> float | None:
        """The best of some values; None when there are none."""
        return (min if self.lower else max)(values, default=None)

    @property
    def heading(self) -> str:
        """The title above a table, with the unit."""
        unit = {"": "", "images": "", "passes": " per image", "ms": ", ms per image"}.get(
            self.unit, f", {self.unit}"
        )
        return self.title[:1].upper() + self.title[1:] + unit

    def text(self, value: float) -> str:
        """A value without its unit.

        >>> METRICS["accuracy"].text(0.7123), METRICS["nll"].text(1.25)
        ('71.2', '1.250')
        """
        if not np.isfinite(value):
            return "–"
        if self.unit == "%":
            return f"{100 * value:.1f}"
        if self.unit in ("images", "MiB"):
            return f"{value:,.0f}"
        return f"{value:.3f}" if self.unit == "" else f"{value:.3g}"

    def difference(self, value: float) -> str:
        """A difference of two values, with its sign.

        >>> METRICS["accuracy"].difference(0.0123), METRICS["nll"].difference(-0.5)
        ('+1.23', '-0.500')
        """
        if not np.isfinite(value):
            return "–"
        return f"{100 * value:+.2f}" if self.unit == "%" else f"{value:+.3f}"


def check(metric: Metric, outcomes: Sequence[Outcome]) -> None:
    """Refuse a metric that none of these outcomes has."""
    if outcomes and all(metric.of(outcome) is None for outcome in outcomes):
        raise InputError(
            f"{metric.title} needs records that hold {metric.needs}, and none of these do;"
            " an older tapr did not write all of it: `tapr bench` makes new records"
        )


def accuracy(outcome: Outcome) -> float | None:
    """The share of images predicted right."""
    return _mean(outcome.correct)


def _mean(values: Floats | None) -> float | None:
    return float(values.mean()) if values is not None and len(values) else None


def _wrong(outcome: Outcome) -> Floats | None:
    return None if outcome.correct is None else 1 - outcome.correct


def _in_top(outcome: Outcome) -> Floats | None:
    if outcome.top is None or outcome.labels is None:
        return None
    return np.asarray((outcome.top == outcome.labels[:, None]).any(1), np.float64)


def nll(outcome: Outcome) -> float | None:
    """The mean negative log-likelihood of the true classes, in nats."""
    mean = _mean(outcome.likelihoods)
    return None if mean is None else -mean


def brier(outcome: Outcome) -> float | None:
    """The mean squared distance of the probabilities from the truth, summed over the classes."""
    if outcome.squares is None or outcome.likelihoods is None:
        return None
    return _mean(outcome.squares - 2 * np.exp(outcome.likelihoods) + 1)


def calibration(outcome: Outcome) -> float | None:
    """The expected calibration error over bins of equal width; a confidence of 1 is in the last."""
    if outcome.confidences is None or outcome.correct is None:
        return None
    bins = np.minimum((outcome.confidences * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, outcome.correct - outcome.confidences, BINS)
    return float(np.abs(gaps).sum() / len(bins)) if len(bins) else None


def calibration_mass(outcome: Outcome) -> float | None:
    """The expected calibration error over bins of equally many images."""
    if outcome.confidences is None or outcome.correct is None or not len(outcome.images):
        return None
    order = np.argsort(outcome.confidences, kind="stable")
    gaps = (outcome.correct - outcome.confidences)[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, BINS)) / len(gaps))


def auroc(outcome: Outcome) -> float | None:
    """How often an image predicted right is more confident than one predicted wrong."""
    if outcome.confidences is None or outcome.correct is None:
        return None
    right = outcome.correct > 0
    hits, misses = int(right.sum()), int((~right).sum())
    if not hits or not misses:
        return None
    ranks = stats.rankdata(outcome.confidences)
    return float((ranks[right].sum() - hits * (hits + 1) / 2) / (hits * misses))


def worst_in_a_row(outcome: Outcome) -> float | None:
    """The lowest accuracy over a thousand consecutive images of a domain."""
    if outcome.correct is None or len(outcome.correct) < IN_A_ROW:
        return None
    sums = np.cumsum(np.concatenate([[0.0], outcome.correct]))
    return float((sums[IN_A_ROW:] - sums[:-IN_A_ROW]).min() / IN_A_ROW)


def settling(outcome: Outcome) -> float | None:
    """The images after which the running accuracy stays within a point of the final one."""
    if outcome.correct is None or not len(outcome.correct):
        return None
    so_far = np.cumsum(outcome.correct) / np.arange(1, len(outcome.correct) + 1)
    away = np.flatnonzero(np.abs(so_far - so_far[-1]) > NEAR)
    return float(away[-1] + 1) if len(away) else 0.0


def _milliseconds(outcome: Outcome) -> float | None:
    return 1000 * outcome.seconds / len(outcome.images) if outcome.seconds else None


_ALL = (
    Metric("accuracy", "accuracy", accuracy, lower=False, shares=lambda o: o.correct),
    Metric("error", "error", lambda o: _mean(_wrong(o)), shares=_wrong),
    Metric(
        "top5",
        f"top-{TOP} accuracy",
        lambda o: _mean(_in_top(o)),
        lower=False,
        shares=_in_top,
        needs=_TOP,
    ),
    Metric(
        "calibration", f"calibration error, {BINS} bins of equal width", calibration, needs=_TOP
    ),
    Metric(
        "calibration-mass",
        f"calibration error, {BINS} bins of equally many images",
        calibration_mass,
        needs=_TOP,
    ),
    Metric("nll", "negative log-likelihood", nll, unit="", needs="log-likelihoods"),
    Metric("brier", "Brier score", brier, unit="", needs="sums of squared probabilities"),
    Metric("auroc", "AUROC of confidence against being right", auroc, lower=False, needs=_TOP),
    Metric("worst-domain", "accuracy on the worst domain", accuracy, lower=False, worst=True),
    Metric(
        "worst-1000",
        f"accuracy on the worst {IN_A_ROW:,} images in a row",
        worst_in_a_row,
        lower=False,
        resampled=False,
        worst=True,
        needs=f"labels, and at least {IN_A_ROW:,} images of each domain",
    ),
    Metric(
        "settling",
        "images until within a point of the final accuracy",
        settling,
        unit="images",
        resampled=False,
    ),
    Metric("time", "time", _milliseconds, unit="ms", resampled=False, needs="seconds"),
    Metric(
        "memory",
        "peak memory",
        lambda o: o.peak,
        unit="MiB",
        resampled=False,
        needs="the peak of memory, which a finished run has",
    ),
    Metric(
        "forward",
        "forward passes",
        lambda o: o.forward / len(o.images) if len(o.images) else None,
        unit="passes",
        resampled=False,
        needs="passes",
    ),
    Metric(
        "backward",
        "backward passes",
        lambda o: o.backward / len(o.images) if len(o.images) else None,
        unit="passes",
        resampled=False,
        needs="passes",
    ),
)
METRICS: Registry[Metric] = Registry("metric", {metric.name: metric for metric in _ALL})
ACCURACY = METRICS["accuracy"]
