"""Method classes by name: shipped ones, those of installed packages, and `module:Class`."""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Any

from torch import nn

from tapr import names
from tapr.adapters import Adapter, Learner, Loop
from tapr.errors import InputError, ModelError, UnknownNameError
from tapr.registry import suggest

GROUP = "tapr.methods"  # the group of entry points by which a package offers methods
COMMON = ("seed", "inplace")  # the parameters that every adapter takes, besides its model
BASES = (Adapter, Loop, Learner)  # only their keyword-only parameters are options


def is_own(name: object) -> bool:
    """Whether this has the form `module:Name`."""
    return isinstance(name, str) and ":" in name


def is_shipped(name: object) -> bool:
    """Whether this is a method that comes with tapr."""
    return name in names.METHODS


def known() -> list[str]:
    """The names of all methods that are installed: ours, then those of other packages."""
    return [*names.METHODS, *(name for name in _offered() if name not in names.METHODS)]


def method(name: str) -> type[Adapter]:
    """The class of a method, by its name or as `module:Class`."""
    places = {**_offered(), **names.METHODS}
    if not is_own(name) and (not isinstance(name, str) or name not in places):
        raise UnknownNameError(f"unknown method {name!r}; {suggest(name, places)}")
    try:
        found = _find(places.get(name, name))
    except Exception as error:
        raise InputError(f"cannot get a method from {name}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Adapter)):
        raise InputError(f"expected {name} to be a subclass of tapr.Adapter, got {found!r}")
    return found


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


def options(kind: type[Adapter]) -> dict[str, Any]:
    """The options of a method with their defaults, from the signature of its constructor.

    If the constructor passes further options on (`**common`), those of its base class are added.
    """
    found: dict[str, Any] = {}
    passed_on = True
    for base in kind.__mro__:
        if "__init__" not in vars(base) or not passed_on or not issubclass(base, Adapter):
            continue
        takes = list(signature(base).parameters.values())[1:]  # behind the model
        passed_on = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in takes)
        for parameter in takes:
            if _is_option(parameter, base):
                found.setdefault(parameter.name, parameter.default)
    for name in COMMON:
        if name not in found:
            raise InputError(
                f"expected {kind.__name__}(model, ..., **options) to hand {name!r} on to Adapter,"
                f" got a constructor that takes only {', '.join(found) or 'the model'}"
            )
    for name, default in found.items():
        if default is Parameter.empty:
            raise InputError(f"expected a default for the option {name!r} of {kind.__name__}")
    return {name: default for name, default in found.items() if name not in COMMON}


def _is_option(parameter: Parameter, base: type[Adapter]) -> bool:
    if parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
        return False
    return base not in BASES or parameter.kind is Parameter.KEYWORD_ONLY


@cache
def _offered() -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group=GROUP)}


def _find(name: str) -> Any:
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
