"""What a benchmark is: data, model, methods, protocol. TOML and flags in, a checked spec out."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tapr.corruptions import CORRUPTIONS, STANDARD
from tapr.errors import DataError, InputError, TaprError, UnknownNameError, expectation
from tapr.registry import Registry, suggest
from tapr.runs import catalogue, own
from tapr.streams import ORDERS, PROTOCOLS

PEST = {"method": "pest"}
_WORDS = {"true": True, "false": False, "none": None}
# The systems the paper compares, the default, and the control: PEST's forwards, no gradient.
SYSTEMS: Registry[Mapping[str, Any]] = Registry(
    "method",
    {
        "source": {"method": "source"},
        "norm": {"method": "norm"},
        "tent": {"method": "tent"},
        "steady": {"method": "steady"},
        "pest-randaugment": {**PEST, "augmentation": "randaugment"},
        "pest-augmix": {**PEST, "augmentation": "augmix"},
        "pest-control": {**PEST, "augmentation": "augmix", "lr": 0.0},
    },
)


def texts(folder: Traversable) -> dict[str, str]:
    """The TOML files of a folder by name."""
    return {
        entry.name.removesuffix(".toml"): entry.read_text("utf-8") for entry in folder.iterdir()
    }


READY: Registry[str] = Registry("spec", texts(files("tapr.runs") / "specs"))


class Spec(BaseModel):
    """A benchmark; every field may stand in the TOML file."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: str
    about: str = ""
    data: str
    split: str = "test"
    corruptions: tuple[str, ...] = STANDARD  # none: the images as they are
    severities: tuple[Annotated[int, Field(ge=1, le=5)], ...] = (5,)
    images: Annotated[int, Field(ge=1)] | None = None  # of each domain; None: all
    protocol: str = "each"
    order: str | None = None
    batch_size: Annotated[int, Field(ge=1)] = 200
    model: str
    architecture: str | None = None  # of a foreign checkpoint, e.g. "robustbench:Standard"
    methods: dict[str, dict[str, Any]]  # label -> method and options
    seeds: tuple[int, ...] = (0,)
    device: str = "cpu"

    @field_validator("methods", mode="before")
    @classmethod
    def _methods(cls, value: object) -> object:
        """A list of labels stands for the systems of that name, or your own `module:Class`."""
        if isinstance(value, list | tuple):
            return {label: _system(label) for label in value}
        return value

    @field_validator("methods")
    @classmethod
    def _known_options(cls, value: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        if not value:
            raise InputError("expected at least one method, got none")
        for options in value.values():
            if catalogue.recipe(**options).get("layout") == "probe":
                raise InputError(
                    "layout 'probe' asks the clock, and a run that is resumed must not: name the"
                    " layout; `tapr doctor MODEL` says which is quicker"
                )
        return value

    @field_validator("corruptions")
    @classmethod
    def _known_corruptions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            CORRUPTIONS[name]
        return value

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, value: str) -> str:
        PROTOCOLS[value]
        return value

    @field_validator("order")
    @classmethod
    def _known_order(cls, value: str | None) -> str | None:
        if value is not None:
            ORDERS[value]
        return value


def _system(label: str) -> dict[str, Any]:
    return {"method": label} if own.is_own(label) else dict(SYSTEMS[label])


def value(text: str) -> Any:
    """What a text on the command line stands for: a word, a number, or a table as JSON.

    >>> value("1e-3"), value("none"), value("fog"), value('{"m": 5}')
    (0.001, None, 'fog', {'m': 5})
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    kinds: tuple[Callable[[str], Any], ...] = (int, float, json.loads)
    for kind in kinds:
        with suppress(ValueError):
            return kind(text)
    return text


def make(values: Mapping[str, Any]) -> Spec:
    """Check the values of a spec; the error names the field."""
    if "over" in values:
        raise InputError("the spec goes over several values ([over]): tapr sweep runs it")
    for key in values:
        if key not in Spec.model_fields:
            raise UnknownNameError(
                f"unknown key {key!r} in the spec; {suggest(key, Spec.model_fields)}"
            )
    try:
        return Spec.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(part for part in first["loc"] if isinstance(part, str))
        cause = first.get("ctx", {}).get("error")
        what = str(cause) if isinstance(cause, TaprError) else expectation(first)
        raise InputError(f"{where} in the spec: {what}") from error


def load(name: str, overrides: Mapping[str, Any]) -> Spec:
    """A ready-made spec by name or a TOML file by path, with some of its values replaced."""
    return make({**values(name), **overrides})


def values(name: str, ready: Registry[str] = READY) -> dict[str, Any]:
    """What a ready-made spec, or a TOML file by its path, says; not yet checked."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot read {name}: {error.strerror or error}") from error
    else:
        text = ready[name]
    try:
        return {"name": Path(name).stem, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name} is not TOML: {error}") from error
