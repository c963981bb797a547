"""Compare two systems on the same images: what one gets right and the other does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr import names
from tapr.errors import InputError
from tapr.records import Shift
from tapr.reports import metrics, titles
from tapr.reports.metrics import ACCURACY, Metric
from tapr.reports.results import Outcome, Setting, System, whole
from tapr.reports.statistics import GROUPS, UNKNOWN, Interval, bootstrap, jackknife, mcnemar


class Side(NamedTuple):
    """One of the two systems of a comparison, and its name there."""

    name: str
    setting: Setting
    system: System


class Pairing(NamedTuple):
    """The comparison over some images: the second against the first."""

    images: int  # predictions compared
    first: float  # the metric of the first system, e.g. the share that it predicts right
    second: float
    interval: Interval | None  # 95 % of the difference, second minus first; None: not known
    fixed: int | None  # wrong in the first, right in the second; None if no share of images
    broken: int | None
    p: float | None  # McNemar's exact test

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


class Comparison(NamedTuple):
    """The comparison over all images (without clean ones around a stream) and for each domain."""

    overall: Pairing
    domains: dict[Shift, Pairing]
    repeated: bool  # whether a picture occurs more than once, in several domains or seeds
    policies: tuple[str, str]  # whose batch-norm statistics each predicts with
    differing: list[str]  # the facts and options in which the two sides differ
    metric: Metric = ACCURACY


def compare(first: Side, second: Side, metric: Metric = ACCURACY) -> Comparison:
    """Compare two systems image by image; raises `InputError` when the images are not the same."""
    _check_data(first, second)
    pairs = _pairs(first, second)
    for side in (0, 1):
        metrics.check(metric, [pair[side] for pair in pairs.values()])
    inside = [pair for (domain, _), pair in pairs.items() if domain.name not in titles.CLEAN]
    everything = inside or list(pairs.values())
    by_domain: dict[Shift, list[_Pair]] = {}
    for (domain, _), pair in pairs.items():
        by_domain.setdefault(domain, []).append(pair)
    ordered = sorted(by_domain, key=titles.place)
    images = np.concatenate([pair.first.images for pair in everything])
    return Comparison(
        _pairing(everything, metric),
        {domain: _pairing(by_domain[domain], metric) for domain in ordered},
        len(np.unique(images)) < len(images),
        (first.system.statistics, second.system.statistics),
        _differing(first, second),
        metric,
    )


class _Pair(NamedTuple):
    """The predictions of both sides on the same images in the same order."""

    first: Outcome
    second: Outcome


def _pairing(pairs: Sequence[_Pair], metric: Metric) -> Pairing:
    images = np.concatenate([pair.first.images for pair in pairs])
    if metric.shares is None:
        return _difference(pairs, metric, len(images))
    first, second = (
        np.concatenate(
            [shares for pair in pairs if (shares := metric.shares(pair[side])) is not None]
        )
        for side in (0, 1)
    )
    gained, lost = int((second > first).sum()), int((second < first).sum())
    fixed, broken = (lost, gained) if metric.lower else (gained, lost)
    return Pairing(
        len(images),
        float(first.mean()),
        float(second.mean()),
        _interval(images, second - first),
        fixed,
        broken,
        mcnemar(fixed, broken),
    )


def _difference(pairs: Sequence[_Pair], metric: Metric, images: int) -> Pairing:
    """The comparison for a metric that is no share of images.

    The jackknife leaves out the same pictures on both sides.
    """
    sides = [pair.first for pair in pairs], [pair.second for pair in pairs]
    first, second = (metric.over(side) for side in sides)
    if first is None or second is None:
        raise InputError(f"{metric.title} is not defined for all of these runs")
    interval = UNKNOWN
    if metric.resampled:
        without = []
        for group in range(GROUPS):
            a, b = (
                metric.over([outcome.take(outcome.images % GROUPS != group) for outcome in side])
                for side in sides
            )
            without += [] if a is None or b is None else [b - a]
        interval = jackknife(second - first, without) if len(without) == GROUPS else UNKNOWN
    known = None if interval is UNKNOWN else interval
    return Pairing(images, first, second, known, None, None, None)


def _interval(images: NDArray[np.int64], gains: NDArray[np.float64]) -> Interval:
    """A bootstrap that draws a picture with all its corruptions and seeds.

    Results on one picture under several corruptions and seeds are not independent.
    """
    _, places, counts = np.unique(images, return_inverse=True, return_counts=True)
    if (counts == counts[0]).all():
        return bootstrap([np.bincount(places, gains) / counts])
    return bootstrap([gains])


def _check_data(first: Side, second: Side) -> None:
    for key in ("data", "origin"):
        values = [_facts(side).get(key) for side in (first, second)]
        if values[0] != values[1]:
            raise InputError(
                f"expected two runs on the same images, got {key} {values[0]!r} of {first.name}"
                f" and {values[1]!r} of {second.name}"
            )


def _pairs(first: Side, second: Side) -> dict[tuple[Shift, int], _Pair]:
    one, two = first.system.outcomes, second.system.outcomes
    for key in {**one, **two}:
        if key not in one or key not in two:
            having, lacking = (first, second) if key in one else (second, first)
            raise InputError(
                f"expected two runs on the same images: {having.name} has {_what(key)},"
                f" {lacking.name} has not{_open(lacking)}"
            )
    return {key: _pair(key, one[key], two[key], first, second) for key in one}


def _pair(key: tuple[Shift, int], one: Outcome, two: Outcome, first: Side, second: Side) -> _Pair:
    if one.labels is None or two.labels is None:
        raise InputError(f"{_what(key)} has no labels, so that accuracy cannot be compared")
    if len(one.images) != len(two.images):
        raise InputError(
            f"expected two runs on the same images: {first.name} has {len(one.images):,} of"
            f" {_what(key)}, {second.name} has {len(two.images):,}{_open(first)}{_open(second)}"
        )
    orders = [_order(one, two), _order(two, one)]
    images, others = one.images[orders[0]], two.images[orders[1]]
    labels, theirs = one.labels[orders[0]], two.labels[orders[1]]
    if not (np.array_equal(images, others) and np.array_equal(labels, theirs)):
        raise InputError(
            f"expected two runs on the same images: {first.name} and {second.name} have others in"
            f" {_what(key)}"
        )
    return _Pair(one.take(orders[0]), two.take(orders[1]))


def _order(outcome: Outcome, other: Outcome) -> NDArray[np.int64]:
    """The order for comparing: as they came if both streams are the same, else sorted by image.

    A picture that occurs twice (a mixed stream has it under every corruption) can only be told
    apart by its place in the stream.
    """
    if np.array_equal(outcome.images, other.images):
        return np.arange(len(outcome.images))
    if len(np.unique(outcome.images)) < len(outcome.images):
        raise InputError(
            "expected the same order of images in both runs, since each occurs several times"
        )
    return np.argsort(outcome.images, kind="stable")


def _what(key: tuple[Shift, int]) -> str:
    return f"{key[0]} with seed {key[1]}"


def _open(side: Side) -> str:
    unfinished = sum(not whole(run) for run in side.system.runs)
    return f" ({side.name} is not finished)" if unfinished else ""


def _differing(first: Side, second: Side) -> list[str]:
    """The facts of the settings, and the options that both have, in which the two sides differ."""
    one, two = _facts(first), _facts(second)
    recipes = first.system.recipe, second.system.recipe
    shared = [key for key in recipes[0] if key in recipes[1]]
    pairs = [(key, one.get(key), two.get(key)) for key in {**one, **two}]
    pairs += [(key, recipes[0][key], recipes[1][key]) for key in shared]
    return [f"{key}: {a} / {b}" for key, a, b in pairs if a != b]


def _facts(side: Side) -> dict[str, Any]:
    """The facts of a side's setting; the origin of the images is in words."""
    origin = side.setting.facts.get("origin")
    words = {"origin": names.origin(**origin)} if origin else {}
    return {**side.setting.facts, **words}


def verdict(found: Comparison, first: str, second: str) -> list[str]:
    """The lines that `tapr compare` prints."""
    all_, metric = found.overall, found.metric
    lines = [
        f"A: {first}: {_level(metric, all_.first)}",
        f"B: {second}: {_level(metric, all_.second)}",
        "",
        _sentence(all_, metric),
    ]
    if all_.fixed is not None and all_.broken is not None and all_.p is not None:
        lines.append(
            f"B fixes {all_.fixed:,} of A's mistakes and breaks {all_.broken:,} of what A had"
            f" right, of {all_.images:,} predictions; McNemar's exact test: p {_p(all_.p)}."
        )
    if found.repeated and all_.p is not None:
        lines.append(
            "The same pictures occur under several corruptions or seeds: the interval accounts for"
            " that, the test over all of them does not."
        )
    if found.policies[0] != found.policies[1]:
        lines.append(
            f"A and B predict with different batch-norm statistics (A: {found.policies[0]};"
            f" B: {found.policies[1]}): part of the difference comes from these."
        )
    if len(found.domains) > 1:
        lines += ["", *_table(found)]
    if found.differing:
        lines += ["", "A / B differ in " + "; ".join(found.differing)]
    return lines


def _level(metric: Metric, value: float) -> str:
    if metric is ACCURACY:
        return f"{100 * value:.2f} % right"
    if metric.unit == "%":
        return f"{metric.title} {100 * value:.2f} %"
    return f"{metric.title} {metric.text(value)} {metric.unit}".strip()


def _sentence(pairing: Pairing, metric: Metric) -> str:
    unit = {"%": " points", "": ""}.get(metric.unit, f" {metric.unit}")
    between = f"{metric.difference(pairing.difference)}{unit}"
    if pairing.interval is None:
        return f"B minus A: {between}; these records do not say how sure that is."
    low, high = pairing.interval
    between += f", 95 % interval {metric.difference(low)} to {metric.difference(high)}"
    if low <= 0 <= high:
        return f"These images do not show a difference between A and B: {between}."
    return (
        f"B is {'better' if metric.better(pairing.difference, 0) else 'worse'} than A: {between}."
    )


def _table(found: Comparison) -> list[str]:
    width = max(len(titles.long(domain)) for domain in found.domains)
    metric = found.metric
    head = f"{'':{width}}      A      B   B - A   95 % interval"
    tested = all(p.p is not None for p in found.domains.values())
    lines = [head + ("  fixed broken        p" if tested else "")]
    scale, digits = (100, 2) if metric.unit == "%" else (1, 3)
    for domain, p in found.domains.items():
        low, high = p.interval or UNKNOWN
        line = (
            f"{titles.long(domain):{width}} {scale * p.first:6.{digits}f}"
            f" {scale * p.second:6.{digits}f} {metric.difference(p.difference):>7}"
            f" {metric.difference(low):>7} {metric.difference(high):>7}"
        )
        if p.p is not None:
            line += f" {p.fixed:6d} {p.broken:6d} {_p(p.p).removeprefix('= '):>8}"
        lines.append(line)
    return lines


def _p(value: float) -> str:
    """A p-value as text; one below a millionth is not written out.

    >>> _p(0.5), _p(0.0004), _p(1e-20)
    ('= 0.50', '= 0.0004', '< 1e-6')
    """
    if value < 1e-6:
        return "< 1e-6"
    return f"= {value:.2f}" if value >= 0.01 else f"= {value:.1g}"
