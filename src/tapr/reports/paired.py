"""Two systems on the same images: what one gets right and the other does not, also in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr import names
from tapr.errors import InputError
from tapr.records import Shift
from tapr.reports import titles
from tapr.reports.results import Outcome, Setting, System, whole
from tapr.reports.statistics import Interval, bootstrap, mcnemar


class Side(NamedTuple):
    """A system to compare with another, under the name that the comparison calls it."""

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
    domains: dict[Shift, Pairing]
    repeated: bool  # does a picture occur more than once: several domains or seeds
    policies: tuple[str, str]  # whose batch-norm statistics each predicts with
    differing: list[str]  # what tells the two sides apart


def compare(first: Side, second: Side) -> Comparison:
    """Compare two systems image by image; refuses when the images are not the same."""
    _check_data(first, second)
    pairs = _pairs(first, second)
    everything = list(pairs.values())
    by_domain: dict[Shift, list[_Pair]] = {}
    for (domain, _), pair in pairs.items():
        by_domain.setdefault(domain, []).append(pair)
    ordered = sorted(by_domain, key=titles.place)
    images = np.concatenate([pair.images for pair in everything])
    return Comparison(
        _pairing(everything),
        {domain: _pairing(by_domain[domain]) for domain in ordered},
        len(np.unique(images)) < len(images),
        (first.system.statistics, second.system.statistics),
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


def _what(key: tuple[Shift, int]) -> str:
    return f"{key[0]} with seed {key[1]}"


def _open(side: Side) -> str:
    unfinished = sum(not whole(run) for run in side.system.runs)
    return f" ({side.name} is not finished)" if unfinished else ""


def _differing(first: Side, second: Side) -> list[str]:
    """Every fact of the settings, and every option that both have, in which the two differ."""
    one, two = _facts(first), _facts(second)
    recipes = first.system.recipe, second.system.recipe
    shared = [key for key in recipes[0] if key in recipes[1]]
    pairs = [(key, one.get(key), two.get(key)) for key in {**one, **two}]
    pairs += [(key, recipes[0][key], recipes[1][key]) for key in shared]
    return [f"{key}: {a} / {b}" for key, a, b in pairs if a != b]


def _facts(side: Side) -> dict[str, Any]:
    """The facts of a side's setting, where the images come from in words."""
    origin = side.setting.facts.get("origin")
    words = {"origin": names.origin(**origin)} if origin else {}
    return {**side.setting.facts, **words}


def verdict(found: Comparison, first: str, second: str) -> list[str]:
    """The lines that `tapr compare` prints."""
    all_ = found.overall
    lines = [
        f"A: {first}: {100 * all_.first:.2f} % right",
        f"B: {second}: {100 * all_.second:.2f} % right",
        "",
        _sentence(all_),
        f"B fixes {all_.fixed:,} of A's mistakes and breaks {all_.broken:,} of what A had right,"
        f" of {all_.images:,} predictions; McNemar's exact test: p {_p(all_.p)}.",
    ]
    if found.repeated:
        lines.append(
            "The same pictures occur under several corruptions or seeds: the interval accounts for"
            " that, the test over all of them does not."
        )
    if found.policies[0] != found.policies[1]:
        lines.append(
            f"A predicts with other batch-norm statistics ({found.policies[0]}) than B"
            f" ({found.policies[1]}): part of the difference is theirs."
        )
    if len(found.domains) > 1:
        lines += ["", *_table(found)]
    if found.differing:
        lines += ["", "A / B differ in " + "; ".join(found.differing)]
    return lines


def _sentence(pairing: Pairing) -> str:
    points, low, high = (100 * v for v in (pairing.difference, *pairing.interval))
    between = f"{points:+.2f} points, 95 % interval {low:+.2f} to {high:+.2f}"
    if low > 0:
        return f"B is better than A: {between}."
    if high < 0:
        return f"B is worse than A: {between}."
    return f"These images do not tell A and B apart: {between}."


def _table(found: Comparison) -> list[str]:
    width = max(len(titles.long(domain)) for domain in found.domains)
    head = f"{'':{width}}      A      B   B - A   95 % interval  fixed broken        p"
    lines = [head]
    for domain, p in found.domains.items():
        low, high = (100 * end for end in p.interval)
        lines.append(
            f"{titles.long(domain):{width}} {100 * p.first:6.2f} {100 * p.second:6.2f}"
            f" {100 * p.difference:+7.2f} {low:+7.2f} {high:+7.2f} {p.fixed:6d} {p.broken:6d}"
            f" {_p(p.p).removeprefix('= '):>8}"
        )
    return lines


def _p(value: float) -> str:
    """A p-value, as small as one can believe it.

    >>> _p(0.5), _p(0.0004), _p(1e-20)
    ('= 0.50', '= 0.0004', '< 1e-6')
    """
    if value < 1e-6:
        return "< 1e-6"
    return f"= {value:.2f}" if value >= 0.01 else f"= {value:.1g}"
