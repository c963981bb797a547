"""The flags that replace values of a spec, the same for every command that runs one.

They follow from the fields of `Spec`: a new field there is a new flag here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, NamedTuple

import typer

from tapr import names
from tapr.cli.completing import Complete, among, methods, models, several
from tapr.runs import spec as specs
from tapr.runs.spec import Spec

_COMPLETE: dict[str, Complete] = {
    "data": among(names.DATA),
    "corruptions": several(names.CORRUPTIONS),
    "protocol": among(names.PROTOCOLS),
    "order": among(names.ORDERS),
    "model": models,
    "methods": methods,
}
_MOST = 4  # values of a default that a help text lists
_OPTIONS = typer.Option(
    None,
    "--option",
    metavar="KEY=VALUE",
    help="Change an option: `LABEL.KEY=VALUE` of the method with this label, `KEY=VALUE` of every"
    " method that has it. May be repeated.",
)


class Replaced(NamedTuple):
    """What the flags say: values of the spec, and options of its methods as they were written."""

    values: dict[str, Any]
    options: list[str]
    size: str | None = None  # one of the spec's own, by name


def flags(field: str) -> tuple[str, ...]:
    """The flags of a field; none when it is not for the command line."""
    found = specs.role(field).flags
    return (f"--{field.replace('_', '-')}",) if found is None else found


def with_overrides(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags after its first argument; its `replaced` is what they say."""
    ours = {field: _parameter(field) for field in Spec.model_fields if flags(field)}
    options = Parameter(
        "option", Parameter.KEYWORD_ONLY, default=_OPTIONS, annotation=list[str] | None
    )
    own = signature(command, eval_str=True).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        values = {field: _value(field, given.pop(field)) for field in ours}
        replaced = {field: value for field, value in values.items() if value is not None}
        changed = given.pop("option") or []
        named = str(replaced.get("size", "0"))[:1].isalpha()  # that of images begins with a number
        size = replaced.pop("size") if named else None
        command(**given, replaced=Replaced(replaced, changed, size))

    first, *rest = (parameter for name, parameter in own.items() if name != "replaced")
    parameters = [first, *ours.values(), options, *rest]
    parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # typer would take its parameters instead
    return run


def _parameter(field: str) -> Parameter:
    default: Any = typer.Option(
        None, *flags(field), help=_help(field), autocompletion=_COMPLETE.get(field)
    )
    kind = specs.kind(field) if specs.is_single(field) else str
    return Parameter(field, Parameter.KEYWORD_ONLY, default=default, annotation=kind | None)


def _help(field: str) -> str:
    """What the field is, and its value when neither the flag nor the spec says one."""
    info = Spec.model_fields[field]
    values = info.default if isinstance(info.default, tuple) else (info.default,)
    said = bool(values) and values[0] is not None
    short = not info.is_required() and said and len(values) < _MOST
    otherwise = f", or {', '.join(map(str, values))}" if short else ""
    return f"{info.description}  [default: from the spec{otherwise}]"


def _value(field: str, given: Any) -> Any:
    """A flag's text as the field takes it."""
    from tapr.errors import InputError

    if given is None or specs.is_single(field):
        return given
    parts = names.pieces(given, ",")
    if parts == ["none"]:
        return []
    try:
        return [specs.kind(field)(part) for part in parts]
    except ValueError as error:
        wanted = "whole numbers" if specs.kind(field) is int else "numbers"
        raise InputError(f"expected {flags(field)[0]} as {wanted}, got {given!r}") from error
