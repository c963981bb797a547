"""Sweeps: a spec over a grid of values; every combination is a benchmark, all in one folder.

A value of the grid may be a table that sets several things at once: a stream, for example, is a
protocol, an order and their parameters. The table's keys are fields of the spec, or options written
as `label.option`.
"""

from __future__ import annotations

import json
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
    """A spec for each combination; each method takes the keys that it knows."""
    base = specs.make(values)
    for key, listed in over.items():
        if not isinstance(listed, Sequence) or isinstance(listed, str) or not listed:
            raise InputError(f"expected {key} over a list of values, got {listed!r}")
    made: list[Spec] = []
    used: set[str] = set()
    for combination in product(*over.values()):
        given = dict(zip(over, combination, strict=True))
        chosen = {key: value for key, value in given.items() if not isinstance(value, Mapping)}
        fields = {key: value for key, value in chosen.items() if key in fields_to_sweep()}
        used.update(fields)
        methods = {label: _changed(table, chosen, used) for label, table in base.methods.items()}
        for key in (key for key in given if key not in chosen):
            used.add(key)
            more, options = _at_once(key, given[key])
            fields |= more
            known = [text for text in options if text.partition(".")[0] in methods]
            methods = variants.with_options(methods, known)
        made.append(specs.make({**values, **fields, "methods": methods}))
    for key in over:
        if key not in used:
            raise UnknownNameError(
                f"unknown key {key!r} to sweep over; {suggest(key, _known(base))}"
            )
    return made


def _at_once(key: str, table: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields that a table sets, and its options in the form of `--option`."""
    allowed = [field for field in Spec.model_fields if field not in ("name", "about", "methods")]
    for inner in table:
        if "." not in inner and inner not in allowed:
            raise UnknownNameError(f"unknown key {inner!r} in {key}; {suggest(inner, allowed)}")
    options = [f"{inner}={json.dumps(value)}" for inner, value in table.items() if "." in inner]
    return {inner: value for inner, value in table.items() if "." not in inner}, options


def tasks(made: Sequence[Spec], over: Over, folder: Path) -> list[Task]:
    """The cells of all specs, each once, in the order of the specs."""
    found: dict[str, Task] = {}
    for spec in made:
        for cell in Bench(spec, folder).cells:
            variant = ", ".join(_variant(cell, over))
            found.setdefault(cell.file, Task(spec, replace(cell, variant=variant)))
    return list(found.values())


def fields_to_sweep() -> list[str]:
    """The fields of a spec that have one value; the others are lists, of which all are run."""
    return [field for field in Spec.model_fields if specs.is_single(field)]


def _changed(table: variants.Table, chosen: Mapping[str, Any], used: set[str]) -> variants.Table:
    """A method's table, changed by those of the chosen options that the method knows."""
    for key, value in chosen.items():
        changed = variants.with_option(table, key, value)
        if changed is not None:
            table = changed
            used.add(key)
    return table


def _known(spec: Spec) -> set[str]:
    return {*fields_to_sweep(), *variants.known_options(spec.methods.values())}


def _variant(cell: Cell, over: Over) -> list[str]:
    plain = [key for key, listed in over.items() if not isinstance(listed[0], Mapping)]
    found = {key: records.setting(cell.identity, key) for key in plain}
    inside = (
        field
        for listed in over.values()
        for each in listed
        if isinstance(each, Mapping)
        for field in each
    )
    several = (records.setting(cell.identity, field) for field in dict.fromkeys(inside))
    return [
        *(f"{key}={value}" for key, value in found.items() if value is not None),
        *(str(value) for value in several if isinstance(value, str | int | float)),
    ]
