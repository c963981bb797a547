"""Your own code by name: `module:Name`, of any module that can be imported."""

from importlib import import_module
from inspect import Parameter, signature
from typing import Any

from torch import nn

from tapr.adapters import Adapter
from tapr.errors import InputError, ModelError

COMMON = ("seed", "inplace")  # what every adapter takes, besides its model


def is_own(name: object) -> bool:
    """Is this `module:Name`?"""
    return isinstance(name, str) and ":" in name


def model(name: str) -> nn.Module:
    """The model called `module:Name`, or the one that the function of this name returns."""
    try:
        found = _find(name)
        made = found if isinstance(found, nn.Module) else found()
    except Exception as error:
        raise ModelError(f"cannot get a model from {name}: {error}") from error
    if not isinstance(made, nn.Module):
        raise ModelError(
            f"expected {name} to be or return a torch.nn.Module, got {type(made).__name__}"
        )
    return made


def adapter(name: str) -> type[Adapter]:
    """The adapter class called `module:Class`."""
    try:
        found = _find(name)
    except Exception as error:
        raise InputError(f"cannot get a method from {name}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise InputError(f"expected {name} to be a subclass of tapr.Adapter, got {found!r}")
    return found


def options(kind: type[Adapter]) -> dict[str, Any]:
    """The options of an adapter class with their defaults, read off its constructor."""
    takes = list(signature(kind).parameters.values())[1:]  # behind the model
    rest = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in takes)
    named = {p.name: p.default for p in takes if p.kind is not Parameter.VAR_KEYWORD}
    for name in COMMON:
        if name not in named and not rest:
            raise InputError(
                f"expected {kind.__name__}(model, ..., **options) to hand {name!r} on to Adapter,"
                f" got a constructor that takes only {', '.join(named) or 'the model'}"
            )
    for name, default in named.items():
        if default is Parameter.empty:
            raise InputError(f"expected a default for the option {name!r} of {kind.__name__}")
    return {name: default for name, default in named.items() if name not in COMMON}


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
