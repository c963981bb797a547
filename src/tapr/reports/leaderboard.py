"""The leaderboard: one number for each method and setting, its rank there, and the mean rank.

We average ranks over settings, but never the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tapr.reports import titles
from tapr.reports.metrics import Metric
from tapr.reports.results import System
from tapr.reports.statistics import LEVEL, UNKNOWN, Interval
from tapr.reports.tables import Estimate, Row, Table, pictures

RESAMPLES = 1000


class Place(NamedTuple):
    """The result and the rank of a method in one setting."""

    estimate: Estimate
    rank: float  # 1 is the best; equal methods share the mean of their ranks
    interval: Interval  # 95 % of the rank, over other pictures; nan when it is not known


class Line(NamedTuple):
    """The results and the mean rank of a method over all settings."""

    name: str
    look: titles.Look
    places: list[Place | None]  # one for each table
    rank: float | None  # the mean over the tables; None unless it has a place in each
    interval: Interval

    @property
    def complete(self) -> bool:
        """Whether the method has a place in every setting."""
        return self.rank is not None


class Leaderboard(NamedTuple):
    """A row per method and a column per setting; best mean rank first, incomplete methods last."""

    tables: Sequence[Table]
    lines: list[Line]

    @property
    def metric(self) -> Metric:
        """The metric that the methods are ranked by."""
        return self.tables[0].metric

    @property
    def best(self) -> list[float | None]:
        """The best value in each setting."""
        columns = zip(*(line.places for line in self.lines), strict=True)
        return [self.metric.best([p.estimate.value for p in column if p]) for column in columns]


def leaderboard(tables: Sequence[Table]) -> Leaderboard | None:
    """Rank the methods of several settings; None unless two methods share two settings."""
    rows = [{row.system.name: row for row in table.rows if row.mean} for table in tables]
    systems: dict[str, System] = {}
    for table in tables:
        for row in table.rows:
            systems.setdefault(row.system.name, row.system)
    met = [name for name in systems if sum(name in found for found in rows) > 1]
    if len(met) < 2:
        return None
    common = [name for name in systems if all(name in found for found in rows)]
    looks = dict(zip(systems, titles.looks([s.named for s in systems.values()]), strict=True))
    places = [_places(table, found) for table, found in zip(tables, rows, strict=True)]
    means = _mean_ranks(tables, rows, common)
    lines = [
        Line(name, looks[name], [found.get(name) for found in places], *means.get(name, _NOWHERE))
        for name in systems
    ]
    return Leaderboard(tables, sorted(lines, key=lambda line: (line.rank is None, line.rank or 0)))


_NOWHERE = (None, UNKNOWN)


def _places(table: Table, rows: dict[str, Row]) -> dict[str, Place]:
    """The ranks within one setting."""
    means = [row.mean for row in rows.values() if row.mean]
    if not means:
        return {}
    ranks = _ranked(np.array([[mean.value for mean in means]]), table.metric)[0]
    drawn = _drawn(table, list(rows.values()))
    ends = [UNKNOWN] * len(means) if drawn is None else _quantiles(drawn)
    found = zip(rows, means, ranks, ends, strict=True)
    return {name: Place(mean, float(rank), end) for name, mean, rank, end in found}


def _mean_ranks(
    tables: Sequence[Table], rows: Sequence[dict[str, Row]], common: list[str]
) -> dict[str, tuple[float, Interval]]:
    """The mean rank over the settings, among the methods that are in all of them."""
    if not common:
        return {}
    ranks, draws = [], []
    for table, found in zip(tables, rows, strict=True):
        values = [mean.value for name in common if (mean := found[name].mean)]
        ranks.append(_ranked(np.array([values]), table.metric)[0])
        draws.append(_drawn(table, [found[name] for name in common]))
    known = [each for each in draws if each is not None]
    ends = [UNKNOWN] * len(common)
    if len(known) == len(draws):
        ends = _quantiles(np.mean(known, axis=0))
    means = np.mean(ranks, axis=0)
    return {name: (float(m), end) for name, m, end in zip(common, means, ends, strict=True)}


def _drawn(table: Table, rows: Sequence[Row]) -> NDArray[np.float64] | None:
    """Bootstrap ranks [R, S]: each draws pictures anew, the same ones for every method.

    None for a metric that is no share of images, and where the methods saw different pictures.
    """
    values = [pictures(row.system, table.averaged, table.metric) for row in rows]
    known = [each for each in values if each is not None]
    if len(known) < len(rows) or len({len(each) for each in known}) != 1:
        return None
    count = len(known[0])
    random = np.random.default_rng(0)
    draws = random.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    return _ranked(draws @ np.stack(known, 1) / count, table.metric)


def _ranked(values: NDArray[np.float64], metric: Metric) -> NDArray[np.float64]:
    """Turn values [R, S] into ranks; values that differ by rounding only share a rank."""
    rounded = np.round(values, 12)
    return np.asarray(stats.rankdata(rounded if metric.lower else -rounded, axis=1), np.float64)


def _quantiles(draws: NDArray[np.float64]) -> list[Interval]:
    tail = (1 - LEVEL) / 2
    lows, highs = np.quantile(draws, [tail, 1 - tail], axis=0)
    return [Interval(float(low), float(high)) for low, high in zip(lows, highs, strict=True)]


class Spent(NamedTuple):
    """A method's metric and time per image, as means over the settings of one model."""

    line: Line
    value: float
    milliseconds: float


def spent(board: Leaderboard) -> dict[str, list[Spent]]:
    """For each model, the metric and the time of every method, as means over its settings."""
    found: dict[str, list[Spent]] = {}
    models = [str(table.setting.facts.get("model")) for table in board.tables]
    for model in dict.fromkeys(models):
        places = [number for number, name in enumerate(models) if name == model]
        for line in board.lines:
            values = [place.estimate.value for n in places if (place := line.places[n])]
            times = [time for n in places if (time := _time(board.tables[n], line.name))]
            if len(values) == len(times) == len(places):
                each = Spent(line, float(np.mean(values)), float(np.mean(times)))
                found.setdefault(model, []).append(each)
    return found


def frontier(points: Sequence[Spent], metric: Metric) -> list[Spent]:
    """The methods for which no other is both better and quicker, the quickest first."""
    best: list[Spent] = []
    for point in sorted(
        points, key=lambda p: (p.milliseconds, p.value * (1 if metric.lower else -1))
    ):
        if not best or metric.better(point.value, best[-1].value):
            best.append(point)
    return best


def _time(table: Table, name: str) -> float | None:
    outcomes = [
        outcome
        for row in table.rows
        if row.system.name == name
        for outcome in row.system.outcomes.values()
    ]
    images = sum(len(outcome.images) for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes)
    return 1000 * seconds / images if images and seconds else None
