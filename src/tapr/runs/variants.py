"""The methods of a spec: variants such as `pest:lr=0`, tables by label, and their options.

Nothing heavy is imported before it is needed, as in `tapr.runs.spec`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tapr.errors import InputError, UnknownNameError
from tapr.registry import suggest

Table = dict[str, Any]  # a method's own table: the key "method", and options


def tables(methods: object) -> Any:
    """A spec's methods as tables by label; a list holds variants, each its own label."""
    if isinstance(methods, list | tuple):
        for text in methods:
            if not isinstance(text, str):
                raise InputError(f"expected methods as texts such as 'tent', got {text!r}")
        return {text: _table(text, {}) for text in methods}
    if isinstance(methods, Mapping):
        return {
            label: _table(str(label), table) if isinstance(table, Mapping) else table
            for label, table in methods.items()
        }
    return methods  # pydantic says what was expected


def _table(label: str, table: Mapping[str, Any]) -> Table:
    from tapr.methods import parse

    method, options = parse(str(table.get("method", label)))
    return {**options, **table, "method": method}


def chosen(wanted: Sequence[str], defined: Mapping[str, Table]) -> dict[str, Table]:
    """The methods that these texts name: labels of the spec, or else variants."""
    from tapr.methods import known

    made: dict[str, Table] = {}
    for text in wanted:
        made[text] = defined[text] if text in defined else _table(text, {})
        method = made[text]["method"]
        if method not in known() and ":" not in method:
            nearest = suggest(method, {*defined, *known()})
            raise UnknownNameError(f"unknown method {method!r}; {nearest}")
    return made


def with_option(table: Table, key: str, value: Any) -> Table | None:
    """A method's table with an option changed; None when the method does not know the option.

    An option of the method's augmentation, such as the `m` of RandAugment, counts as the method's.
    """
    if key in {*_options(table), "preset"}:
        return {**table, key: value}
    if key in _augmentation_options(table):
        given = {**_options(table), **table}["augmentation_options"]
        return {**table, "augmentation_options": {**given, key: value}}
    return None


def known_options(methods: Iterable[Table]) -> set[str]:
    """Every option that at least one of the methods knows."""
    return {key for table in methods for key in (*_options(table), *_augmentation_options(table))}


def _options(table: Table) -> Mapping[str, Any]:
    from tapr.methods import presets

    return presets(table["method"])[table.get("preset", "paper")]


def _augmentation_options(table: Table) -> set[str]:
    from tapr.methods import augmentations

    effective = {**_options(table), **table}
    if "augmentation_options" not in effective:
        return set()
    named = effective["augmentation"], effective.get("augmentation_preset", "paper")
    return set(augmentations.options(*named))


def with_options(methods: Mapping[str, Table], assignments: Sequence[str]) -> dict[str, Table]:
    """The methods with options changed by texts such as `NAME.key=value` and `key=value`.

    A name is a label, or else that of a method: all variants of it are changed.
    """
    from tapr.methods import value as read

    changed = dict(methods)
    for text in assignments:
        named = _named(methods)
        label = max((name for name in named if text.startswith(f"{name}.")), key=len, default=None)
        key, _, written = text.removeprefix(f"{label}." if label else "").partition("=")
        if not key.strip() or not written.strip():
            raise InputError(f"expected --option NAME.key=value or key=value, got {text!r}")
        unknown, dot, _ = key.rpartition(".")
        if dot:
            raise UnknownNameError(f"unknown method {unknown!r}; {suggest(unknown, named)}")
        value = read(written.strip())
        found = {
            each: made
            for each in (named[label] if label else methods)
            if (made := with_option(changed[each], key.strip(), value)) is not None
        }
        if not found:
            whose = f"method {label!r}" if label else "these methods"
            known = known_options(methods[each] for each in (named[label] if label else methods))
            raise UnknownNameError(f"unknown option {key!r} of {whose}; {suggest(key, known)}")
        changed.update(found)
    return changed


def _named(methods: Mapping[str, Table]) -> dict[str, list[str]]:
    """For each name the labels that it stands for: itself, or all variants of a method."""
    found: dict[str, list[str]] = {}
    for label, table in methods.items():
        found.setdefault(table["method"], []).append(label)
    return found | {label: [label] for label in methods}
