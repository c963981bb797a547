"""The numbers behind the page's own controls: every metric of every method in every setting."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapr.reports import plots, titles, words
from tapr.reports.leaderboard import Leaderboard
from tapr.reports.metrics import METRICS, Metric
from tapr.reports.tables import Estimate, Table, estimate

POINTS = 40  # points of a curve along a stream
Number = list[float | None] | float | None  # a value, or a value and the ends of its interval


def data(board: Leaderboard) -> str:
    """Every metric of every method in every setting, as JSON."""
    names = [line.name for line in board.lines]
    known = [metric for metric in METRICS.values() if _has(board.tables, metric)]
    content = {
        "metrics": [_metric(metric) for metric in known],
        "chosen": board.metric.name,
        "methods": [
            {"name": line.name, "title": line.look.title, "colour": line.look.colour}
            for line in board.lines
        ],
        "ranks": [
            None if line.rank is None else _round([line.rank, *line.interval])
            for line in board.lines
        ],
        "settings": [_setting(table) for table in board.tables],
        # metric -> setting -> method -> the mean, then every domain
        "values": {
            metric.name: [_values(table, names, metric) for table in board.tables]
            for metric in known
        },
        "curves": [_curves(table, names) for table in board.tables],
    }
    return json.dumps(content, separators=(",", ":"))


def _has(tables: Sequence[Table], metric: Metric) -> bool:
    outcomes = (o for t in tables for s in t.setting.systems for o in s.outcomes.values())
    return any(metric.of(outcome) is not None for outcome in outcomes)


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "heading": metric.heading,
        "unit": metric.unit,
        "lower": metric.lower,
        "fold": "worst" if metric.worst else "mean",
    }


def _setting(table: Table) -> dict[str, Any]:
    setting = table.setting
    several = setting.severity is None
    return {
        "model": str(setting.facts.get("model")),
        "data": str(setting.facts.get("data")),
        "stream": words.stream(setting),
        "about": words.heading(setting),
        "images": setting.facts.get("images"),
        "domains": [titles.short(domain, several) for domain in table.domains],
    }


def _values(table: Table, names: Sequence[str], metric: Metric) -> list[list[Number] | None]:
    systems = {system.name: system for system in table.setting.systems}
    found: list[list[Number] | None] = []
    for name in names:
        if name not in systems:
            found.append(None)
            continue
        system = systems[name]
        mean = estimate(system, table.averaged, metric)
        domains = [
            estimate(system, [domain], metric, sure=metric.shares is not None)
            for domain in table.domains
        ]
        found.append([_number(mean if mean and mean.finished else None), *map(_number, domains)])
    return found


def _number(found: Estimate | None) -> Number:
    if found is None:
        return None
    if not found.over:
        return _round([found.value])[0]
    return _round([found.value, *found.interval])


def _round(values: Sequence[float]) -> list[float | None]:
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in values]


def _curves(table: Table, names: Sequence[str]) -> list[list[list[float | None]] | None]:
    """Each method's accuracy along the stream: a few points of images seen and shares right."""
    systems = {system.name: system for system in table.setting.systems}
    found: list[list[list[float | None]] | None] = []
    for name in names:
        line = plots.curve(systems[name], plots.batch_accuracy) if name in systems else None
        if line is None:
            found.append(None)
            continue
        at = np.unique(np.linspace(0, len(line.x) - 1, min(len(line.x), POINTS)).astype(int))
        found.append([_round(line.x[at].tolist()), _round(line.y[at].tolist())])
    return found
