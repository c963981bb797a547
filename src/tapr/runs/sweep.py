"""A spec over a grid: every combination is an ordinary benchmark, all cells in one folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from tapr import names, records
from tapr.errors import InputError, UnknownNameError
from tapr.methods import value as read
from tapr.registry import Registry, suggest
from tapr.runs import spec as specs
from tapr.runs import variants
from tapr.runs.bench import Bench, Cell
from tapr.runs.spec import Spec

Over = Mapping[str, Sequence[Any]]  # key -> the values it takes
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
        values = [read(part) for part in names.pieces(listed, ",")]
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
        fields = {key: value for key, value in chosen.items() if key in fields_to_sweep()}
        used.update(fields)
        methods = {label: _changed(table, chosen, used) for label, table in base.methods.items()}
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


def fields_to_sweep() -> list[str]:
    """The fields of a spec that have one value; the others are lists, and cross with everything."""
    return [field for field in Spec.model_fields if specs.is_single(field)]


def _changed(table: variants.Table, chosen: Mapping[str, Any], used: set[str]) -> variants.Table:
    """A method's table with those of the chosen options that it knows."""
    for key, value in chosen.items():
        changed = variants.with_option(table, key, value)
        if changed is not None:
            table = changed
            used.add(key)
    return table


def _known(spec: Spec) -> set[str]:
    return {*fields_to_sweep(), *variants.known_options(spec.methods.values())}


def _variant(cell: Cell, over: Over) -> list[str]:
    found = {key: records.setting(cell.identity, key) for key in over}
    return [f"{key}={value}" for key, value in found.items() if value is not None]
