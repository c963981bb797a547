"""Two systems on the same images: what one gets right and the other does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.errors import InputError
from tapr.reports import names
from tapr.reports.results import Outcome, Setting, System, whole
from tapr.reports.statistics import Interval, bootstrap, mcnemar


class Side(NamedTuple):
    """One of the two."""

    name: str
    setting: Setting
    system: System


class Pairing(NamedTuple):
    """The comparison over some images: the second against the first."""

    images: int  # predictions compared
    first: float  # share the first predicts right
    second: float
    interval: Interval  # 95 % of the difference, second minus first
    fixed: int  # wrong in the first, right in the second
    broken: int
    p: float  # McNemar's exact test

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.second - self.first


class Comparison(NamedTuple):
    """All images together, and each domain for itself."""

    overall: Pairing
    domains: dict[str, Pairing]
    repeated: bool  # does a picture occur more than once: several domains or seeds
    policies: tuple[str, str]  # whose batch-norm statistics each predicts with
    differing: list[str]  # what tells the two sides apart


def compare(first: Side, second: Side) -> Comparison:
    """Compare two systems image by image; refuses when the images are not the same."""
    _check_data(first, second)
    pairs = _pairs(first, second)
    everything = list(pairs.values())
    by_domain: dict[str, list[_Pair]] = {}
    for (domain, _), pair in pairs.items():
        by_domain.setdefault(domain, []).append(pair)
    ordered = sorted(by_domain, key=names.place)
    images = np.concatenate([pair.images for pair in everything])
    return Comparison(
        _pairing(everything),
        {domain: _pairing(by_domain[domain]) for domain in ordered},
        len(np.unique(images)) < len(images),
        (first.system.policy, second.system.policy),
        _differing(first, second),
    )


class _Pair(NamedTuple):
    images: NDArray[np.int64]
    first: NDArray[np.bool_]  # right or not
    second: NDArray[np.bool_]


def _pairing(pairs: Iterable[_Pair]) -> Pairing:
    pairs = list(pairs)
    images, first, second = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    fixed, broken = int((~first & second).sum()), int((first & ~second).sum())
    return Pairing(
        len(images),
        float(first.mean()),
        float(second.mean()),
        _interval(images, second.astype(float) - first),
        fixed,
        broken,
        mcnemar(fixed, broken),
    )


def _interval(images: NDArray[np.int64], gains: NDArray[np.float64]) -> Interval:
    """Pictures are drawn with all their corruptions and seeds, which are not independent."""
    _, places, counts = np.unique(images, return_inverse=True, return_counts=True)
    if (counts == counts[0]).all():
        return bootstrap([np.bincount(places, gains) / counts])
    return bootstrap([gains])


def _check_data(first: Side, second: Side) -> None:
    for key in ("data", "origin"):
        values = [side.setting.facts.get(key) for side in (first, second)]
        if values[0] != values[1]:
            raise InputError(
                f"expected two runs on the same images, got {key} {values[0]!r} of {first.name}"
                f" and {values[1]!r} of {second.name}"
            )


def _pairs(first: Side, second: Side) -> dict[tuple[str, int], _Pair]:
    one, two = first.system.outcomes, second.system.outcomes
    for key in sorted({*one, *two}):
        if key not in one or key not in two:
            having, lacking = (first, second) if key in one else (second, first)
            raise InputError(
                f"expected two runs on the same images: {having.name} has {_what(key)},"
                f" {lacking.name} has not{_open(lacking)}"
            )
    return {key: _pair(key, one[key], two[key], first, second) for key in one}


def _pair(key: tuple[str, int], one: Outcome, two: Outcome, first: Side, second: Side) -> _Pair:
    if one.labels is None or two.labels is None:
        raise InputError(f"{_what(key)} has no labels, so nobody knows who is right")
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
    return _Pair(images, one.predicted[orders[0]] == labels, two.predicted[orders[1]] == labels)


def _order(outcome: Outcome, other: Outcome) -> NDArray[np.int64]:
    """As they came when both streams are the same; sorted by image when they are not.

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


def _what(key: tuple[str, int]) -> str:
    return f"{key[0]} with seed {key[1]}"


def _open(side: Side) -> str:
    unfinished = sum(not whole(run) for run in side.system.runs)
    return f" ({side.name} is not finished)" if unfinished else ""


def _differing(first: Side, second: Side) -> list[str]:
    """Every fact, and every option that both have, in which the two differ."""
    one, two = ({**side.setting.facts, **side.system.recipe} for side in (first, second))
    keys = [key for key in one if key in two and one[key] != two[key]]
    return [f"{key}: {one[key]} / {two[key]}" for key in keys]
