"""Runs that differ in the chosen settings only: the points of a figure, with their numbers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tapr import records
from tapr.records import Shift
from tapr.reports import titles
from tapr.reports.results import Setting, System
from tapr.reports.tables import Estimate, estimate

At = tuple[Any, ...]  # a value for each axis
STATISTICS = {
    "batch": "statistics of the batch",
    "running": "running statistics",
    "cumulative": "cumulative statistics",
    "blend": "blended statistics, prior {prior:g}",
    "source": "the source's statistics",
}
WORDS = {
    "steps": "steps on each batch",
    "lr": "learning rate",
    "batch_size": "images in a batch",
    "n": "ops in a row, n",
    "m": "highest level, m (of 30)",
    "severity": "severity (of 10)",
    "width": "chains side by side",
    "depth": "longest chain",
}
_MISSING = object()


class Series(NamedTuple):
    """One line of a figure: a system with all its settings but those that vary."""

    label: str
    look: titles.Look
    points: dict[Shift, dict[At, Estimate]]  # domain -> place -> accuracy


class Grid(NamedTuple):
    """The runs of one figure: they differ in the axes and in the system only."""

    axes: tuple[str, ...]
    domains: list[Shift]
    series: list[Series]
    levels: dict[Shift, Estimate]  # domain -> the unadapted model's accuracy

    def places(self, domain: Shift | None = None) -> list[At]:
        """Every combination of values that has a point, in order."""
        wanted = self.domains if domain is None else [domain]
        found = {at for one in self.series for name in wanted for at in one.points.get(name, ())}
        return sorted(found, key=_order)


class _Entry(NamedTuple):
    at: At
    named: titles.Named  # without the axes
    recipe: dict[str, Any]  # without the axes
    system: System


def grids(settings: Sequence[Setting], axes: tuple[str, ...], named: bool = True) -> list[Grid]:
    """A grid for each group of settings that differ in the axes only and vary along them.

    Unless `named`, systems that differ in the axes and in their label are one series.
    """
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        free = {*axes, "severities"}  # a domain's name has its severity
        facts = {key: value for key, value in setting.facts.items() if key not in free}
        groups.setdefault(_key(facts), []).append(setting)
    found = (_grid(group, axes, named) for group in groups.values())
    return [grid for grid in found if grid.series]


def _grid(settings: list[Setting], axes: tuple[str, ...], named: bool) -> Grid:
    systems: dict[str, list[_Entry]] = {}
    levels: dict[Shift, Estimate] = {}
    for setting in settings:
        for system in setting.systems:
            if not system.adapts:
                levels.update(_estimates(system))
            elif entry := _entry(system, axes):
                if not named:
                    entry = entry._replace(named=titles.Named(system.method, system.method))
                key = _key([entry.named.label, entry.recipe])
                systems.setdefault(key, []).append(entry)
    varied = [group for group in systems.values() if len({_key(entry.at) for entry in group}) > 1]
    series = _series(varied)
    domains = sorted({d for one in series for d in one.points}, key=titles.place)
    return Grid(axes, domains, series, {d: levels[d] for d in domains if d in levels})


def _entry(system: System, axes: tuple[str, ...]) -> _Entry | None:
    """A system and its place on the axes; None when it does not have these settings."""
    cell = {**system.runs[0].cell, "recipe": system.recipe}
    at = tuple(records.setting(cell, axis, _MISSING) for axis in axes)
    if _MISSING in at:
        return None
    named = system.named._replace(difference="", options=_without(system.options, axes))
    return _Entry(at, named, _without(system.recipe, axes) or {}, system)


def _without(options: Mapping[str, Any] | None, axes: tuple[str, ...]) -> dict[str, Any] | None:
    """The options without the axes, which may be options of the augmentation."""
    if options is None:
        return None
    rest = {key: value for key, value in options.items() if key not in axes}
    given = rest.get("augmentation_options") or {}
    if given:
        rest["augmentation_options"] = {k: v for k, v in given.items() if k not in axes}
    return rest


def _series(groups: list[list[_Entry]]) -> list[Series]:
    recipes = [group[0].recipe for group in groups]
    labels = [_differing(recipe, recipes) for recipe in recipes]
    looks = titles.looks([group[0].named for group in groups])
    made = []
    for group, label, look in zip(groups, labels, looks, strict=True):
        points: dict[Shift, dict[At, Estimate]] = {}
        for entry in group:
            for domain, found in _estimates(entry.system).items():
                points.setdefault(domain, {})[entry.at] = found
        same = len({entry[0].named.label for entry in groups}) == 1
        title = label if same and label else ", ".join(filter(None, (look.title, label)))
        if points:
            made.append(Series(title, look, points))
    return made


def _differing(recipe: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """In words, the options in which a recipe differs from the others."""
    keys = [k for k in recipe if any(_key(o.get(k)) != _key(recipe[k]) for o in others)]
    return ", ".join(_in_words(key, recipe) for key in keys)


def words(key: str) -> str:
    """The name of a setting, for a reader."""
    return WORDS.get(key, key.replace("_", " "))


def _in_words(key: str, recipe: Mapping[str, Any]) -> str:
    value = recipe[key]
    if key == "statistics" and value in STATISTICS:
        return STATISTICS[value].format(**recipe)
    return f"{words(key)} {value}"


def _estimates(system: System) -> dict[Shift, Estimate]:
    """The accuracy on each finished domain."""
    found = {domain: estimate(system, [domain]) for domain, _ in system.outcomes}
    return {domain: one for domain, one in found.items() if one and one.finished}


def to_csv(grid: Grid) -> str:
    """The numbers of a grid as CSV; the unadapted model's lines have no values of the axes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["domain", "series", *grid.axes, "accuracy", "low", "high", "images", "seeds"])
    writer.writerows(_lines(grid))
    return text.getvalue()


def _lines(grid: Grid) -> Iterator[list[object]]:
    for domain in grid.domains:
        if domain in grid.levels:
            yield [domain, "unadapted", *[""] * len(grid.axes), *_numbers(grid.levels[domain])]
        for series in grid.series:
            for at, found in sorted(
                series.points.get(domain, {}).items(), key=lambda p: _order(p[0])
            ):
                yield [domain, series.label, *at, *_numbers(found)]


def _numbers(found: Estimate) -> list[object]:
    shares = (f"{value:.6f}" for value in (found.value, *found.interval))
    return [*shares, found.images, found.seeds]


def _order(at: At) -> list[tuple[float, str]]:
    return [(v, "") if isinstance(v, int | float) else (float("inf"), str(v)) for v in at]


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
