"""A spec over a grid: every combination is an ordinary benchmark, all cells in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tapr import records
from tapr.errors import InputError, UnknownNameError
from tapr.registry import Registry, suggest
from tapr.runs import catalogue
from tapr.runs import spec as specs
from tapr.runs.bench import Bench, Cell
from tapr.runs.spec import Spec

Over = Mapping[str, Sequence[Any]]  # key -> the values it takes
# What of a spec has one value; the other fields are lists already, and cross with everything.
FIELDS = (
    *("data", "split", "images", "protocol", "order", "batch_size"),
    *("model", "architecture", "device"),
)
NOT_OPTIONS = {"method", "preset", "seed"}
ABLATIONS: Registry[str] = Registry("ablation", specs.texts(files("tapr.runs") / "ablations"))


class Task(NamedTuple):
    """A cell, and the spec that it is a cell of."""

    spec: Spec
    cell: Cell


def parse(assignments: Sequence[str]) -> dict[str, list[Any]]:
    """The grid in `key=a,b,c` texts.

    >>> parse(["lr=1e-4,1e-3", "redraw=true,false"])
    {'lr': [0.0001, 0.001], 'redraw': [True, False]}
    """
    over: dict[str, list[Any]] = {}
    for text in assignments:
        key, equals, listed = text.partition("=")
        values = [specs.value(part.strip()) for part in listed.split(",") if part.strip()]
        if not (key.strip() and equals and values):
            raise InputError(f"expected --over key=a,b,c, got {text!r}")
        over[key.strip()] = values
    return over


def expand(values: Mapping[str, Any], over: Over) -> list[Spec]:
    """A spec for each combination; each method takes the keys that mean something to it."""
    base = specs.make(values)
    for key, listed in over.items():
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            raise InputError(f"expected {key} over a list of values, got {listed!r}")
    made: list[Spec] = []
    used: set[str] = set()
    for combination in product(*over.values()):
        chosen = dict(zip(over, combination, strict=True))
        fields = {key: value for key, value in chosen.items() if key in FIELDS}
        used.update(fields)
        methods = {}
        for label, options in base.methods.items():
            methods[label] = _changed(options, chosen, used)
        made.append(specs.make({**values, **fields, "methods": methods}))
    for key in over:
        if key not in used:
            raise UnknownNameError(f"unknown key {key!r} to go over; {suggest(key, _known(base))}")
    return made


def tasks(made: Sequence[Spec], over: Over, folder: Path) -> list[Task]:
    """Every cell of the specs once, in their order."""
    found: dict[str, Task] = {}
    for spec in made:
        for cell in Bench(spec, folder).cells:
            variant = ", ".join(_variant(cell, over))
            found.setdefault(cell.file, Task(spec, replace(cell, variant=variant)))
    return list(found.values())


def _changed(options: Mapping[str, Any], chosen: Mapping[str, Any], used: set[str]) -> Any:
    """A method's options with those of the chosen values that it knows."""
    changed = dict(options)
    for key, value in chosen.items():
        recipe = catalogue.recipe(**changed)
        if key in recipe.keys() - NOT_OPTIONS:
            changed[key] = value
        elif key in _augmentation_keys(recipe):
            changed["augmentation_options"] = {**recipe["augmentation_options"], key: value}
        else:
            continue
        used.add(key)
    return changed


def _augmentation_keys(recipe: Mapping[str, Any]) -> set[str]:
    if not recipe.get("augmentation"):
        return set()
    make = catalogue.AUGMENTATION_PRESETS[recipe["augmentation_preset"]][recipe["augmentation"]]
    return set(signature(make).parameters)


def _known(spec: Spec) -> set[str]:
    known = set(FIELDS)
    for options in spec.methods.values():
        recipe = catalogue.recipe(**options)
        known |= (recipe.keys() - NOT_OPTIONS) | _augmentation_keys(recipe)
    return known


def _variant(cell: Cell, over: Over) -> list[str]:
    found = {key: records.setting(cell.identity, key) for key in over}
    return [f"{key}={value}" for key, value in found.items() if value is not None]
