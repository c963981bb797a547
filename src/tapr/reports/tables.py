"""The tables of a setting: a metric by domain, and what each method costs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.names import STANDARD
from tapr.records import Shift, class_accuracies, confusion
from tapr.reports import metrics, paper, titles
from tapr.reports.beside import beside
from tapr.reports.metrics import ACCURACY, Metric
from tapr.reports.published import TABLES
from tapr.reports.results import Outcome, Setting, System
from tapr.reports.statistics import GROUPS, UNKNOWN, Interval, bootstrap, jackknife, over_seeds


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    value: float
    interval: Interval
    over: str  # "seeds" or "images": what the interval is over; "" when there is none
    images: int  # of one seed
    seeds: int
    finished: bool


class Row(NamedTuple):
    """A system's line."""

    system: System
    look: titles.Look
    cells: list[Estimate | None]  # one for each domain of the table
    mean: Estimate | None  # None unless every domain it is over is there and finished
    paper: float | None  # what the paper published for this method
    published: float | None  # what others published for it, in this very setting
    source: str  # where that number was published; "" without one


class Table(NamedTuple):
    """A metric with a row for each system and a column for each domain."""

    setting: Setting
    domains: list[Shift]
    averaged: list[Shift]  # the domains that the mean is over
    rows: list[Row]
    published: str  # where the published numbers come from, or why there are none
    metric: Metric = ACCURACY

    @property
    def mean_title(self) -> str:
        """The heading of the mean, which says over how many domains it is."""
        if len(self.domains) == 1:
            return self.metric.name
        return f"{'worst' if self.metric.worst else 'mean'} of {len(self.averaged)}"

    @property
    def baseline(self) -> Row | None:
        """The row of the unadapted model, if there is one."""
        return next((row for row in self.rows if not row.system.adapts), None)

    @property
    def has_paper(self) -> bool:
        """Whether the paper published a number for one of the rows."""
        return any(row.paper is not None for row in self.rows)

    @property
    def has_published(self) -> bool:
        """Whether others published a number for one of the rows, in this setting."""
        return any(row.source for row in self.rows)

    def best(self, column: int | None) -> float | None:
        """The best number in the column of a domain, or of the mean (`column` None)."""
        found = [row.mean if column is None else row.cells[column] for row in self.rows]
        return self.metric.best([cell.value for cell in found if cell and cell.finished])


def table(setting: Setting, metric: Metric = ACCURACY) -> Table:
    """A metric of each system on each domain.

    The mean is over the standard fifteen corruptions when all are there, else over all domains.
    Clean images around a stream do not count.
    """
    domains = setting.domains
    standard = [domain for domain in domains if domain.corruption in STANDARD]
    inside = [domain for domain in domains if domain.name not in titles.CLEAN]
    averaged = standard if len(standard) == len(STANDARD) else inside
    if metric is not ACCURACY:
        metrics.check(metric, [o for s in setting.systems for o in s.outcomes.values()])
    row = paper.published(setting) if metric is ACCURACY else None
    looks = titles.looks([system.named for system in setting.systems])
    others = beside(
        setting.facts,
        {domain.corruption for domain in domains},
        [
            (system.method, None if system.differing else system.options)
            for system in setting.systems
        ],
        TABLES if metric is ACCURACY else (),
    )
    return Table(
        setting,
        domains,
        averaged,
        [
            Row(
                system,
                look,
                [estimate(system, [domain], metric) for domain in domains],
                _whole(estimate(system, averaged, metric)),
                row.of(system) if row else None,
                number,
                source,
            )
            for system, look, number, source in zip(
                setting.systems, looks, others.numbers, others.sources, strict=True
            )
        ],
        others.line,
        metric,
    )


def estimate(
    system: System, domains: Sequence[Shift], metric: Metric = ACCURACY, sure: bool = True
) -> Estimate | None:
    """A metric over the domains, with a 95 % interval over seeds, or else over images.

    None when a domain is missing, or data that the metric needs. Unless `sure`, it computes no
    interval.
    """
    seeds = [seed for seed in system.seeds if all((d, seed) in system.outcomes for d in domains)]
    parts = [[system.outcomes[domain, seed] for domain in domains] for seed in seeds]
    found = [metric.over(part) for part in parts]
    means = [value for value in found if value is not None]
    if not means or len(means) < len(found):
        return None
    many = len(set(means)) > 1  # a deterministic method has no interval over seeds
    interval = UNKNOWN
    if sure:
        interval = over_seeds(means) if many else over_images(metric, parts[0], means[0])
    return Estimate(
        value=float(np.mean(means)),
        interval=_possible(metric, interval),
        over="" if interval is UNKNOWN else "seeds" if many else "images",
        images=sum(len(outcome.images) for outcome in parts[0]),
        seeds=len(means),
        finished=all(outcome.finished for part in parts for outcome in part),
    )


def over_images(metric: Metric, outcomes: Sequence[Outcome], value: float) -> Interval:
    """The interval over other images: a bootstrap for shares of images, a jackknife for the rest.

    The jackknife leaves the same pictures out of every domain at once.
    """
    if metric.shares is not None:
        shares = [metric.shares(outcome) for outcome in outcomes]
        return bootstrap(_strata(outcomes, [each for each in shares if each is not None]))
    if not metric.resampled:
        return UNKNOWN
    without = [
        metric.over([outcome.take(outcome.images % GROUPS != group) for outcome in outcomes])
        for group in range(GROUPS)
    ]
    known = [each for each in without if each is not None]
    return jackknife(value, known) if len(known) == GROUPS else UNKNOWN


def _possible(metric: Metric, interval: Interval) -> Interval:
    """Cut an interval to the values that the metric can take."""
    if interval is UNKNOWN:
        return interval
    most = 1.0 if metric.unit == "%" else float("inf")
    return Interval(max(0.0, interval.low), min(most, interval.high))


def _whole(mean: Estimate | None) -> Estimate | None:
    return mean if mean and mean.finished else None


def _strata(
    outcomes: Sequence[Outcome], values: list[NDArray[np.float64]]
) -> list[NDArray[np.float64]]:
    """The groups that the bootstrap draws from: all pictures, or the pictures of each domain.

    Where every domain shows the same pictures, we draw a picture with all its corruptions at once,
    since a picture that is hard in fog is hard in snow as well. We do the same with a picture that
    comes several times.
    """
    parts = [_pictures(outcome, v) for outcome, v in zip(outcomes, values, strict=True)]
    images = [pictures for pictures, _ in parts]
    if all(np.array_equal(images[0], other) for other in images):
        return [np.mean([v for _, v in parts], axis=0)]
    return [v for _, v in parts]


def pictures(
    system: System, domains: Sequence[Shift], metric: Metric
) -> NDArray[np.float64] | None:
    """The mean of each picture over domains and seeds; None where the pictures are not the same."""
    found = []
    for seed in system.seeds:
        outcomes = [system.outcomes.get((domain, seed)) for domain in domains]
        known = [outcome for outcome in outcomes if outcome is not None]
        shares = [metric.shares(outcome) for outcome in known] if metric.shares else []
        values = [share for share in shares if share is not None]
        if len(values) < len(domains):
            return None
        found.append(_strata(known, values))
    if any(len(strata) > 1 for strata in found) or len({len(s[0]) for s in found}) != 1:
        return None
    return np.asarray(np.mean([strata[0] for strata in found], axis=0), np.float64)


def _pictures(
    outcome: Outcome, values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Each picture once, with its mean value; all values as they came if some come more often."""
    pictures, places, counts = np.unique(outcome.images, return_inverse=True, return_counts=True)
    if (counts != counts[0]).any():
        return outcome.images, values
    return pictures, np.bincount(places, values) / counts


class Cost(NamedTuple):
    """The cost of a system: passes, time, memory, steps."""

    forward: float  # images through the model per image predicted
    backward: float
    speed: float  # images predicted per second
    peak: float | None  # MiB
    steps: int
    refused: int
    kept: float | None  # share of the images that drove the last step of their batch


def cost(system: System) -> Cost | None:
    """The cost of a system over all its runs; None before its first batch."""
    batches = [batch for run in system.runs for batch in run.batches]
    images = sum(len(batch.predicted) for batch in batches)
    if not images:
        return None

    stepping = [batch for batch in batches if batch.steps or batch.refused]
    seen = sum(len(batch.predicted) for batch in stepping)
    seconds = sum(batch.seconds for batch in batches)
    peaks = [run.end["peak_mib"] for run in system.runs if run.end and run.end.get("peak_mib")]
    return Cost(
        forward=sum(batch.forward for batch in batches) / images,
        backward=sum(batch.backward for batch in batches) / images,
        speed=images / seconds if seconds else float("nan"),
        peak=min(peaks, default=None),  # a process's peak never falls: the lowest bounds it best
        steps=sum(batch.steps for batch in batches),
        refused=sum(batch.refused for batch in batches),
        kept=sum(batch.kept for batch in stepping) / seen if seen else None,
    )


class ByClass(NamedTuple):
    """The accuracy of each class, over all domains and seeds."""

    rows: dict[str, dict[int, float]]  # system's name -> class -> share predicted right

    @property
    def classes(self) -> list[int]:
        """Every class that has images."""
        return sorted({number for row in self.rows.values() for number in row})

    def best(self, number: int) -> float:
        """The highest accuracy on a class."""
        return max(row.get(number, 0.0) for row in self.rows.values())


def by_class(table: Table) -> ByClass:
    """The accuracy of each finished system on each class."""
    done = [row.system for row in table.rows if row.mean]
    batches = {s.name: [batch for run in s.runs for batch in run.batches] for s in done}
    shares = {name: class_accuracies(confusion(part)) for name, part in batches.items()}
    return ByClass(shares)
