"""Files of the format before this one, brought to the present one: the only parser of its texts.

"tapr-run-1" wrote a method's label as its name, and a domain and its origin as texts for people.
"""

import re
from collections.abc import Mapping
from typing import Any

from tapr import names

FORMAT = "tapr-run-1"
_PRESENT = "tapr-run-2"
_DOMAIN = re.compile(r"(?P<corruption>.+)-(?P<severity>[1-5])")
_ORIGIN = re.compile(
    r"(?P<dataset>.*?)(?P<made>, generated|, read from files)?(?: with seed (?P<seed>\d+))?"
)
_MADE = {None: "clean", ", generated": "generated", ", read from files": "published"}
# The labels that stood for a method with options.
_OPTIONS: Mapping[str, dict[str, Any]] = {
    "source": {},
    "norm": {},
    "tent": {},
    "pest-augmix": {},
    "pest-randaugment": {"augmentation": "randaugment"},
    "pest-control": {"lr": 0.0},
}
_SETTING = ("data", "images", "protocol", "order", "batch_size", "model", "model_hash")


def upgrade(kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """A line of this kind ("run", "batch" or "end") in the present format."""
    return {"run": _run, "batch": _batch}.get(kind, dict)(content)


def _run(content: Mapping[str, Any]) -> dict[str, Any]:
    old = dict(content["cell"])
    recipe = old.get("recipe") or {}
    label = str(old.get("method", "?"))
    method = str(recipe.get("method", label))
    domains = [_domain(str(name)) for name in old.get("domains") or ()]
    origin = _origin(str(old.get("origin") or ""))
    setting = {key: old.get(key) for key in _SETTING}
    setting["split"] = old.get("split") or "test"
    setting["origin"] = {key: origin[key] for key in ("dataset", "made")}
    setting["severities"] = sorted({d["severity"] for d in domains if d["severity"]})
    if len(domains) > 1:
        setting["domains"] = [domain["name"] for domain in domains]
    kept = ("spec", "recipe", "views", "seed", "device", "classes")
    cell = {
        **{key: old[key] for key in kept if key in old},
        "label": label,
        "method": method,
        "title": method,
        "options": _OPTIONS.get(label),
        "statistics": _statistics(method, recipe),
        "adapts": ":" in method or "statistics" in recipe,  # only the baseline had neither
        "setting": setting,
        "origin": origin,
        "domains": domains,
    }
    return {**content, "format": _PRESENT, "cell": cell}


def _batch(content: Mapping[str, Any]) -> dict[str, Any]:
    domain = _domain(str(content.get("domain", "")))
    return {**content, "corruption": domain["corruption"], "severity": domain["severity"]}


def _domain(name: str) -> dict[str, Any]:
    found = _DOMAIN.fullmatch(name)
    if found is None:
        return {"name": name, "corruption": None, "severity": None}
    return {"name": name, "corruption": found["corruption"], "severity": int(found["severity"])}


def _origin(text: str) -> dict[str, Any]:
    found = _ORIGIN.fullmatch(text)
    if found is None:
        return {"dataset": text, "made": "clean", "seed": None}
    seed = None if found["seed"] is None else int(found["seed"])
    return {"dataset": found["dataset"], "made": _MADE[found["made"]], "seed": seed}


def _statistics(method: str, recipe: Mapping[str, Any]) -> str:
    own = ":" in method and "statistics" not in recipe  # the old format did not ask
    return "not recorded" if own else names.statistics(recipe)
