"""The spec that makes a setting's runs again, as TOML."""

import json
from collections.abc import Mapping
from typing import Any

from tapr.reports import names
from tapr.reports.results import Setting

_COPIED = ("images", "protocol", "order", "batch_size", "model")


def spec(setting: Setting) -> str:
    """The TOML for `tapr bench`: data, protocol and every option of every method."""
    cell = setting.runs[0].cell
    parts = [names.split(domain) for domain in cell.get("domains", ())]
    if setting.single:
        parts = [names.split(domain) for domain in setting.domains]
    corruptions = dict.fromkeys(name for name, severity in parts if severity)
    seeds = sorted({seed for system in setting.systems for seed in system.seeds})
    values = {
        "name": cell.get("spec") or "again",
        "data": cell.get("data"),
        "split": cell.get("split"),
        "corruptions": list(corruptions),
        "severities": sorted({severity for _, severity in parts if severity}),
        **{key: setting.facts.get(key) for key in _COPIED},
        "seeds": seeds,
        "device": cell.get("device"),
    }
    if not corruptions:
        del values["severities"]
    lines = _pairs(values)
    for system in setting.systems:
        lines += ["", f"[methods.{json.dumps(system.label)}]", *_pairs(system.recipe)]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, Any]) -> list[str]:
    """What is None is the default, and TOML has no word for it."""
    return [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]


def _toml(value: object) -> str:
    """A value as TOML; strings, numbers, truth values and lists are written as in JSON."""
    return json.dumps(value, ensure_ascii=False)
