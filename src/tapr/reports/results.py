"""Records sorted for showing: settings that must not be mixed, systems, domains, outcomes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr import records
from tapr.errors import DataError
from tapr.records import BatchRecord, RunRecord
from tapr.reports import names

# What has to be equal for numbers to stand in one table.
COMMON = (
    *("data", "split", "origin", "images", "protocol", "order"),
    *("batch_size", "model", "model_hash"),
)


class Outcome(NamedTuple):
    """What one system made of one domain with one seed."""

    images: NDArray[np.int64]  # [N]
    labels: NDArray[np.int64] | None  # [N]
    predicted: NDArray[np.int64]  # [N]
    finished: bool

    @property
    def correct(self) -> NDArray[np.float64] | None:
        """1 where the prediction is right, 0 elsewhere; None without labels."""
        return None if self.labels is None else (self.labels == self.predicted).astype(np.float64)


@dataclass(frozen=True)
class System:
    """One method with one table of options: a row."""

    label: str  # the method's label; with the options that differ when there are several of it
    method: str
    recipe: Mapping[str, Any]
    runs: list[RunRecord]

    @cached_property
    def outcomes(self) -> dict[tuple[str, int], Outcome]:
        """By domain and seed."""
        found = {}
        for run in self.runs:
            for domain, outcome in _outcomes(run).items():
                found[domain, int(run.cell.get("seed", 0))] = outcome
        return found

    @property
    def seeds(self) -> list[int]:
        """Every seed there is a run of."""
        return sorted({int(run.cell.get("seed", 0)) for run in self.runs})

    @property
    def policy(self) -> str:
        """Whose batch-norm statistics it predicts with, and what feeds them."""
        use = str(self.recipe.get("statistics", "source"))
        feeds = use in ("running", "cumulative") and self.recipe.get("views")
        return f"{use}, fed by {self.recipe.get('feed', 'views')}" if feeds else use


@dataclass(frozen=True)
class Setting:
    """What its systems share: data, model and protocol. One table."""

    facts: Mapping[str, Any]
    severity: int | None  # of all its domains; None when they differ or have none
    systems: list[System]

    @cached_property
    def domains(self) -> list[str]:
        """In the stream's order when it is one stream, else in the standard order."""
        found = {domain for system in self.systems for domain, _ in system.outcomes}
        if self.single:
            return sorted(found, key=names.place)
        along = [b.domain for s in self.systems for run in s.runs for b in run.batches]
        return list(dict.fromkeys(along))

    @property
    def single(self) -> bool:
        """Is every domain a stream of its own?"""
        return bool(self.facts.get("protocol") in (None, "each"))

    @property
    def runs(self) -> list[RunRecord]:
        """All of them."""
        return [run for system in self.systems for run in system.runs]


@dataclass(frozen=True)
class Results:
    """Everything that was read, sorted, and what was wrong with it."""

    settings: list[Setting]
    problems: list[str] = field(default_factory=list)


def read(paths: Sequence[Path]) -> Results:
    """Read files of runs, and all those in folders and the folders below."""
    problems: list[str] = []
    runs = []
    for path in _files(paths):
        try:
            run, wrong = records.read(path)
        except DataError as error:
            problems.append(str(error))
            continue
        runs.append(run)
        problems += wrong
    if not runs:
        found = f": {problems[0]}" if problems else ""
        raise DataError(f"no run that can be read in {', '.join(map(str, paths))}{found}")
    settings = gather(runs, problems)
    return Results(settings, problems)


def gather(runs: Iterable[RunRecord], problems: list[str]) -> list[Setting]:
    """Sort runs into settings; of two runs of the same thing the longer one is kept."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(_key([_facts(run), _severity(run)]), []).append(run)
    settings = [
        Setting(_facts(group[0]), _severity(group[0]), _systems(group, problems))
        for group in groups.values()
    ]
    return sorted(settings, key=lambda s: (str(s.facts.get("data")), s.severity or 0))


def batches(run: RunRecord) -> list[BatchRecord]:
    """In the stream's order, each once."""
    return [batch for _, batch in sorted({batch.number: batch for batch in run.batches}.items())]


def whole(run: RunRecord) -> bool:
    """Did the run end, and is every line of it there?"""
    numbers = [batch.number for batch in batches(run)]
    domains = len(run.cell.get("domains", ()))
    expected = int(run.cell.get("images", 0)) * domains
    return run.end is not None and numbers == [*range(len(numbers))] and run.images >= expected


def _files(paths: Sequence[Path]) -> list[Path]:
    found: dict[Path, Path] = {}
    for path in paths:
        if not path.exists():
            raise DataError(f"expected the records of runs, and {path} does not exist")
        inside = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        if not inside:
            raise DataError(f"no .jsonl file in {path}; `tapr bench --out {path}` writes them")
        found.update({file.resolve(): file for file in inside})
    return list(found.values())


def _facts(run: RunRecord) -> dict[str, Any]:
    """What the run's setting is; the seed of generated corruptions goes with the run's."""
    facts = {key: run.cell.get(key) for key in COMMON}
    facts["split"] = facts["split"] or "test"
    facts["origin"] = re.sub(r" with seed \d+", "", str(facts["origin"] or ""))
    if facts["protocol"] not in (None, "each"):
        facts["domains"] = list(run.cell.get("domains", ()))
    return facts


def _severity(run: RunRecord) -> int | None:
    levels = {names.split(str(domain))[1] for domain in run.cell.get("domains", ())}
    return levels.pop() if len(levels) == 1 else None


def _systems(runs: list[RunRecord], problems: list[str]) -> list[System]:
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault((str(run.cell.get("method")), _key(_recipe(run))), []).append(run)
    recipes: dict[str, list[dict[str, Any]]] = {}
    for (method, _), group in groups.items():
        recipes.setdefault(method, []).append(_recipe(group[0]))
    systems = []
    for (method, _), group in groups.items():
        recipe = _recipe(group[0])
        label = method + _apart(recipe, recipes[method])
        systems.append(System(label, method, recipe, _once(label, group, problems)))
    ranks = {method: rank for rank, method in enumerate(names.ORDER)}
    return sorted(systems, key=lambda s: (ranks.get(s.method, len(ranks)), _natural(s.label)))


def _once(label: str, runs: list[RunRecord], problems: list[str]) -> list[RunRecord]:
    """One run for each stream and seed."""
    kept: dict[str, RunRecord] = {}
    for run in runs:
        key = _key([run.cell.get("domains"), run.cell.get("seed")])
        if key in kept:
            what = ", ".join(map(str, run.cell.get("domains", ())))
            seed = run.cell.get("seed")
            problems.append(f"two runs of {label} on {what} with seed {seed}: the longer is shown")
        kept[key] = max(kept.get(key, run), run, key=lambda r: (r.images, r.end is not None))
    return list(kept.values())


def _recipe(run: RunRecord) -> dict[str, Any]:
    return {key: value for key, value in run.cell.get("recipe", {}).items() if key != "seed"}


def _apart(recipe: dict[str, Any], all_of_it: list[dict[str, Any]]) -> str:
    """What tells this table of options from the others of the same label."""
    mine, others = _flat(recipe), [_flat(other) for other in all_of_it]
    keys = {key for other in others for key in other | mine}
    differing = [k for k in sorted(keys) if any(o.get(k) != mine.get(k) for o in others)]
    return f" ({', '.join(f'{key}={mine.get(key)}' for key in differing)})" if differing else ""


def _flat(recipe: dict[str, Any]) -> dict[str, Any]:
    """With the augmentation's options beside the method's."""
    return {**recipe, "augmentation_options": None, **(recipe.get("augmentation_options") or {})}


def _natural(text: str) -> list[tuple[float, str]]:
    """Sorts numbers in a text as numbers: steps=2 before steps=10.

    >>> sorted(["lr=0.1", "lr=1e-05", "steps=10", "steps=2"], key=_natural)
    ['lr=1e-05', 'lr=0.1', 'steps=2', 'steps=10']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", text)
    return [(float(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]


def _outcomes(run: RunRecord) -> dict[str, Outcome]:
    parts: dict[str, list[BatchRecord]] = {}
    for batch in batches(run):
        parts.setdefault(batch.domain, []).append(batch)
    complete = whole(run)
    countable = run.cell.get("protocol", "each") in ("each", "continual")
    expected = int(run.cell.get("images", 0))
    found = {}
    for domain, group in parts.items():
        labels = [label for batch in group for label in batch.labels or ()]
        images = np.array([image for batch in group for image in batch.images], np.int64)
        found[domain] = Outcome(
            images=images,
            labels=np.array(labels, np.int64) if len(labels) == len(images) else None,
            predicted=np.array([p for batch in group for p in batch.predicted], np.int64),
            finished=complete or (countable and 0 < expected <= len(images)),
        )
    return found


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
