"""Records, sorted for a report: settings that must not be mixed, systems, domains, outcomes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr import names, records
from tapr.records import BatchRecord, RunRecord, Shift
from tapr.reports import titles
from tapr.reports.titles import CLEAN


class Outcome(NamedTuple):
    """The predictions of one system on one domain with one seed, and what they cost."""

    images: NDArray[np.int64]  # [N]
    labels: NDArray[np.int64] | None  # [N]
    predicted: NDArray[np.int64]  # [N]
    finished: bool
    top: NDArray[np.int64] | None = None  # [N, 5] the likeliest classes; -1 where there are fewer
    confidences: NDArray[np.float64] | None = None  # [N] the predicted class's probability
    likelihoods: NDArray[np.float64] | None = None  # [N] the logarithm of the true class's
    squares: NDArray[np.float64] | None = None  # [N] the sum of all squared probabilities
    seconds: float = 0.0
    forward: int = 0  # images through the model
    backward: int = 0
    peak: float | None = None  # MiB of the run's process

    @property
    def correct(self) -> NDArray[np.float64] | None:
        """1 where the prediction is right, 0 elsewhere; None without labels."""
        return None if self.labels is None else (self.labels == self.predicted).astype(np.float64)

    def take(self, places: NDArray[Any]) -> Outcome:
        """Only the images at these places; the cost stays that of the whole run."""
        arrays = {k: v[places] for k, v in self._asdict().items() if isinstance(v, np.ndarray)}
        return self._replace(**arrays)


@dataclass(frozen=True)
class System:
    """One method with one set of options: a row of a table."""

    label: str  # its name in the spec
    differing: Mapping[str, Any]  # the options in which it differs from others with its label
    runs: list[RunRecord]

    @property
    def name(self) -> str:
        """The label, followed by the options that differ where several systems share the label."""
        return self.label + self._difference

    @property
    def named(self) -> titles.Named:
        """The facts from which the system's title is made."""
        cell = self.runs[0].cell
        options = cell.get("options")
        if options is not None:
            options = {key: value for key, value in options.items() if key not in self.differing}
        title = str(cell.get("title") or self.method)
        return titles.Named(self.label, self.method, title, options, self._difference)

    @property
    def method(self) -> str:
        """The method's own name."""
        return self.runs[0].method

    @property
    def options(self) -> Mapping[str, Any] | None:
        """The options that are not the method's defaults; None when they are not known."""
        found: Mapping[str, Any] | None = self.runs[0].cell.get("options")
        return found

    @property
    def recipe(self) -> Mapping[str, Any]:
        """Every option."""
        return self.runs[0].recipe

    @property
    def adapts(self) -> bool:
        """False for the unadapted baseline."""
        return self.runs[0].adapts

    @property
    def statistics(self) -> str:
        """Which batch-norm statistics the system predicts with."""
        return str(self.runs[0].cell.get("statistics") or "not recorded")

    @cached_property
    def outcomes(self) -> dict[tuple[Shift, int], Outcome]:
        """The outcome on each domain with each seed."""
        return {
            (domain, run.seed): outcome
            for run in self.runs
            for domain, outcome in (
                run.outcomes if isinstance(run, _Light) else _outcomes(run)
            ).items()
        }

    @property
    def seeds(self) -> list[int]:
        """Every seed that has a run."""
        return sorted({run.seed for run in self.runs})

    @property
    def _difference(self) -> str:
        listed = ", ".join(f"{key}={value}" for key, value in self.differing.items())
        return f" ({listed})" if listed else ""


@dataclass(frozen=True)
class Setting:
    """Systems that share data, model and protocol: one table."""

    facts: Mapping[str, Any]
    systems: list[System]

    @cached_property
    def domains(self) -> list[Shift]:
        """The domains, in the order of the stream if it is one, else in the standard order."""
        found = {domain for system in self.systems for domain, _ in system.outcomes}
        if self.single:
            return sorted(found, key=titles.place)
        along = [b.shift for s in self.systems for run in s.runs for b in run.batches]
        return [shift for shift in dict.fromkeys(along) if shift.name not in names.BLANKS]

    @property
    def severity(self) -> int | None:
        """The severity that all domains share; None when they differ or have none."""
        levels = list(self.facts.get("severities") or [])
        return int(levels[0]) if len(levels) == 1 else None

    @property
    def single(self) -> bool:
        """Whether every domain is a stream of its own."""
        return bool(self.facts.get("protocol") in (None, "each"))

    @property
    def runs(self) -> list[RunRecord]:
        """The runs of all its systems."""
        return [run for system in self.systems for run in system.runs]


@dataclass(frozen=True)
class Results:
    """All records that were read, sorted into settings, and the problems found on the way."""

    settings: list[Setting]
    problems: list[str] = field(default_factory=list)


def read(paths: Sequence[Path]) -> Results:
    """Read the given files of runs, and all files in the given folders and their subfolders."""
    problems: list[str] = []
    runs = [_light(run) for run in records.each(paths, problems)]
    return Results(gather(runs, problems), problems)


@dataclass(frozen=True)
class _Light(RunRecord):
    """A run that keeps its values per image in arrays: lists would take three times the memory."""

    outcomes: dict[Shift, Outcome] = field(default_factory=dict)


def _light(run: RunRecord) -> _Light:
    batches = [
        replace(batch, top=[], probabilities=[], log_likelihoods=None, squares=None)
        for batch in run.batches
    ]
    return _Light(run.cell, run.environment, batches, run.end, _outcomes(run))


def gather(runs: Iterable[RunRecord], problems: list[str]) -> list[Setting]:
    """Sort runs into settings; of two runs of the same cell we keep the longer one."""
    groups: dict[str, list[RunRecord]] = {}
    for run in runs:
        groups.setdefault(_key(run.setting), []).append(run)
    settings = [Setting(group[0].setting, _systems(group, problems)) for group in groups.values()]
    return sorted(settings, key=_place)


def _place(setting: Setting) -> tuple[Any, ...]:
    """The sort key of settings: by data and model, then by stream, as the tables list them."""
    facts = setting.facts
    named = ((names.PROTOCOLS, facts.get("protocol")), (names.ORDERS, facts.get("order")))
    stream = [table.index(name) if name in table else -1 for table, name in named]
    rounds = [float(facts.get(key, 0)) for key in ("rounds", "burst", "clean")]
    return (str(facts.get("data")), setting.severity or 0, str(facts.get("model")), rounds, stream)


def batches(run: RunRecord) -> list[BatchRecord]:
    """A run's batches in the stream's order, each once."""
    return [batch for _, batch in sorted({batch.number: batch for batch in run.batches}.items())]


def whole(run: RunRecord) -> bool:
    """Whether the run has ended and every line of it is there."""
    numbers = [batch.number for batch in batches(run)]
    expected = sum(_expected(run, shift) for shift in run.shifts)
    return run.end is not None and numbers == [*range(len(numbers))] and run.images >= expected


def _expected(run: RunRecord, domain: Shift) -> int:
    """How many images of a domain a whole stream shows; an image counts as often as it comes."""
    facts = run.setting
    burst = int(facts.get("burst", 1))
    if domain.name in CLEAN:
        return burst * int(facts.get("clean", 0))
    return burst * int(facts.get("rounds", 1)) * int(facts.get("images", 0))


def _systems(runs: list[RunRecord], problems: list[str]) -> list[System]:
    groups: dict[tuple[str, str], list[RunRecord]] = {}
    for run in runs:
        groups.setdefault((run.label, _key(run.recipe)), []).append(run)
    recipes: dict[str, list[dict[str, Any]]] = {}
    for (label, _), group in groups.items():
        recipes.setdefault(label, []).append(group[0].recipe)
    systems = []
    for (label, _), group in groups.items():
        system = System(label, _differing(group[0].recipe, recipes[label]), group)
        systems.append(replace(system, runs=_once(system.name, group, problems)))
    return sorted(systems, key=lambda s: (titles.rank(s.named), _natural(s.name)))


def _once(name: str, runs: list[RunRecord], problems: list[str]) -> list[RunRecord]:
    """One run for each stream and seed."""
    kept: dict[str, RunRecord] = {}
    for run in runs:
        what = ", ".join(map(str, run.shifts))
        key = _key([what, run.seed])
        if key in kept:
            problems.append(
                f"two runs of {name} on {what} with seed {run.seed}: the longer is shown"
            )
        kept[key] = max(kept.get(key, run), run, key=lambda r: (r.images, r.end is not None))
    return list(kept.values())


def _differing(recipe: dict[str, Any], all_of_it: list[dict[str, Any]]) -> dict[str, Any]:
    """The options in which this recipe differs from the others with the same label."""
    mine, others = _flat(recipe), [_flat(other) for other in all_of_it]
    keys = sorted({key for other in others for key in other | mine})
    return {k: mine.get(k) for k in keys if any(o.get(k) != mine.get(k) for o in others)}


def _flat(recipe: dict[str, Any]) -> dict[str, Any]:
    """The recipe with the augmentation's options put beside the method's."""
    return {**recipe, "augmentation_options": None, **(recipe.get("augmentation_options") or {})}


def _natural(text: str) -> list[tuple[float, str]]:
    """A sort key that compares numbers in a text as numbers: steps=2 comes before steps=10.

    >>> sorted(["lr=0.1", "lr=1e-05", "steps=10", "steps=2"], key=_natural)
    ['lr=1e-05', 'lr=0.1', 'steps=2', 'steps=10']
    """
    parts = re.split(r"(\d+(?:\.\d+)?(?:e-?\d+)?)", text)
    return [(float(part), "") if number % 2 else (0, part) for number, part in enumerate(parts)]


def _outcomes(run: RunRecord) -> dict[Shift, Outcome]:
    parts: dict[Shift, list[BatchRecord]] = {}
    for batch in batches(run):
        parts.setdefault(batch.shift, []).append(batch)
    complete = whole(run)
    countable = run.setting.get("protocol", "each") in ("each", "continual")
    found = {}
    for domain, group in parts.items():
        images = np.array([image for batch in group for image in batch.images], np.int64)
        count = len(images)
        found[domain] = Outcome(
            images=images,
            labels=_column(count, [batch.labels for batch in group], np.int64),
            predicted=np.array([p for batch in group for p in batch.predicted], np.int64),
            top=_column(count, [[_five(t) for t in batch.top] for batch in group], np.int64),
            confidences=_column(
                count, [[max(p, default=0.0) for p in b.probabilities] for b in group], np.float64
            ),
            likelihoods=_column(count, [batch.log_likelihoods for batch in group], np.float64),
            squares=_column(count, [batch.squares for batch in group], np.float64),
            seconds=sum(batch.seconds for batch in group),
            forward=sum(batch.forward for batch in group),
            backward=sum(batch.backward for batch in group),
            peak=(run.end or {}).get("peak_mib"),
            finished=complete or (countable and 0 < _expected(run, domain) <= len(images)),
        )
    return found


def _column(count: int, parts: Sequence[Sequence[Any] | None], kind: type) -> NDArray[Any] | None:
    """A value for each image; None unless every image has one."""
    values = [value for part in parts for value in part or ()]
    return np.array(values, kind) if len(values) == count else None


def _five(classes: Sequence[int]) -> list[int]:
    return [*classes, *[-1] * records.TOP][: records.TOP]


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)
