"""The flags that replace values of a spec, the same for every command that runs one."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Signature, signature
from typing import Any

import typer

from tapr.cli.completing import (
    CORRUPTIONS,
    DATA,
    ORDERS,
    PROTOCOLS,
    SYSTEMS,
    among,
    models,
    several,
)


def overrides(
    data: str | None = typer.Option(
        None, help="e.g. `cifar10c`, `folder:PATH`.", autocompletion=among(DATA)
    ),
    split: str | None = typer.Option(None, help="The part of the data, e.g. `validation`."),
    corruptions: str | None = typer.Option(
        None,
        help="Names, comma between; `none`: clean images.",
        autocompletion=several(CORRUPTIONS),
    ),
    severity: str | None = typer.Option(None, help="1 to 5; several with commas."),
    images: int | None = typer.Option(None, help="Images of each domain."),
    methods: str | None = typer.Option(
        None,
        "--methods",
        "--method",
        help="e.g. `source,norm,tent,pest-augmix`, or your own `module:Class`.",
        autocompletion=several(SYSTEMS),
    ),
    batch_size: int | None = typer.Option(None, help="Images in a batch."),
    model: str | None = typer.Option(
        None, help="A name, a path, or `module:function`.", autocompletion=models
    ),
    architecture: str | None = typer.Option(
        None, help="Of a checkpoint that is not ours, e.g. `robustbench:Standard`."
    ),
    seed: str | None = typer.Option(None, help="Seeds of the adapters; several with commas."),
    protocol: str | None = typer.Option(
        None, help="`each`, `continual`, `mixed`, `gradual`.", autocompletion=among(PROTOCOLS)
    ),
    order: str | None = typer.Option(
        None, help="`listed`, `shuffled`, `sorted`, `dirichlet`.", autocompletion=among(ORDERS)
    ),
    device: str | None = typer.Option(None, help="`cpu`, `cuda`, ..."),
) -> dict[str, Any]:
    """The values of a spec that the flags replace."""
    names = _list(corruptions)
    given: dict[str, Any] = {
        "data": data,
        "split": split,
        "corruptions": [] if names == ["none"] else names,
        "severities": _numbers("--severity", severity),
        "images": images,
        "methods": _list(methods),
        "batch_size": batch_size,
        "model": model,
        "architecture": architecture,
        "seeds": _numbers("--seed", seed),
        "protocol": protocol,
        "order": order,
        "device": device,
    }
    return {key: value for key, value in given.items() if value is not None}


def with_overrides(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command these flags after its first argument; its `replaced` is what they come to."""
    flags = signature(overrides, eval_str=True).parameters
    own = signature(command, eval_str=True).parameters

    @wraps(command)
    def run(**given: Any) -> None:
        replaced = overrides(**{name: given.pop(name) for name in flags})
        command(**given, replaced=replaced)

    first, *rest = (parameter for name, parameter in own.items() if name != "replaced")
    parameters = [first, *flags.values(), *rest]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del run.__wrapped__  # typer would take its parameters instead
    return run


def _list(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _numbers(option: str, text: str | None) -> list[int] | None:
    from tapr.errors import InputError

    try:
        return None if text is None else [int(part) for part in _list(text) or []]
    except ValueError as error:
        raise InputError(f"expected {option} as whole numbers, got {text!r}") from error
