"""The spec of a benchmark (data, model, methods, protocol), read from TOML and flags, and checked.

`Spec` is the only list of the fields. From it follow the flags of the command line, the fields that
a sweep may go over, the identity of a run, and what must be equal for numbers to be in one table.
Nothing heavy is imported before a spec is checked, since `tapr --help` needs the fields as well.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tapr import names
from tapr.errors import DataError, InputError, TaprError, UnknownNameError, expectation
from tapr.registry import Registry, suggest
from tapr.runs.variants import Table, chosen, tables, with_options

_NOT_OPTIONS = {
    "seed": "the spec's `seeds` decide it, for every method",
    "inplace": "the next method needs the model as it was",
}


def texts(folder: Traversable) -> dict[str, str]:
    """The TOML files of a folder by name."""
    return {
        entry.name.removesuffix(".toml"): entry.read_text("utf-8") for entry in folder.iterdir()
    }


READY: Registry[str] = Registry("spec", texts(files("tapr.runs") / "specs"))


@dataclass(frozen=True)
class Role:
    """How the command line and the tables of a report treat a field, if not as usual."""

    flags: tuple[str, ...] | None = None  # None: the field's own name; (): no flag
    common: bool = True  # whether it must be equal for numbers to be in one table
    # Whether its default is left out of a run's identity. This is so for fields that were added
    # later, so that older records keep their names.
    later: bool = False


_UNCOMMON = Role(common=False)
_LATER = Role(later=True)


class Spec(BaseModel):
    """A benchmark; the TOML file may set every field."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    name: Annotated[str, Role((), common=False)]
    about: Annotated[str, Role((), common=False)] = ""
    data: Annotated[
        str, Field(description="The data set, e.g. `cifar10c`, or `folder:PATH` for your images.")
    ]
    split: Annotated[
        str, Field(description="The part of the data set to predict, e.g. `validation`.")
    ] = "test"
    corruptions: Annotated[
        tuple[str, ...],
        Field(
            description="The corruptions, separated by commas: the standard 15 by default. `none`"
            " leaves the images as they are; `clean` among other names adds the uncorrupted images."
        ),
        _UNCOMMON,
    ] = tuple(names.STANDARD)
    severities: Annotated[
        tuple[Annotated[int, Field(ge=1, le=5)], ...],
        Field(
            description="The severity of the corruptions, from 1 to 5; separate several by commas."
        ),
        Role(("--severity",), common=False),
    ] = (5,)
    images: Annotated[
        Annotated[int, Field(ge=1)] | None,
        Field(description="The number of images of each domain; all by default."),
    ] = None
    protocol: Annotated[
        str,
        Field(
            description="How domains follow each other: `each` (with a reset before each),"
            " `continual`, `mixed`, `gradual`, or `alternating` (a batch of each in turn)."
        ),
    ] = "each"
    order: Annotated[
        str | None,
        Field(
            description="How images follow each other: `listed`, `shuffled`, `sorted` (by class),"
            " `dirichlet`, `correlated` or `shift`."
        ),
    ] = None
    delta: Annotated[
        Annotated[float, Field(gt=0, allow_inf_nan=False)],
        Field(
            description="The concentration of the orders `dirichlet` and `correlated`: the smaller"
            " it is, the longer the runs of one class."
        ),
        _LATER,
    ] = 0.1
    shift_at: Annotated[
        Annotated[float, Field(gt=0, lt=1)],
        Field(
            description="The share of a domain's images after which the order `shift` continues"
            " with other classes."
        ),
        _LATER,
    ] = 0.5
    burst: Annotated[
        Annotated[int, Field(ge=1)],
        Field(description="How many times in a row each image is shown."),
        _LATER,
    ] = 1
    rounds: Annotated[
        Annotated[int, Field(ge=1)],
        Field(description="How many times the whole stream is repeated, without a reset."),
        _LATER,
    ] = 1
    clean: Annotated[
        Annotated[int, Field(ge=0)],
        Field(description="The number of clean images before the stream, and again after it."),
        _LATER,
    ] = 0
    blank: Annotated[
        str | None,
        Field(
            description="Put four batches of blank images before the stream: `black`, `constant`"
            " (one colour) or `noise`."
        ),
        _LATER,
    ] = None
    only_class: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(description="The number of a class: only its images are predicted."),
        _LATER,
    ] = None
    batch_size: Annotated[
        Annotated[int, Field(ge=1)], Field(description="The number of images in a batch.")
    ] = 200
    model: Annotated[
        str,
        Field(description="The model: a shipped name, a checkpoint's path, or `module:function`."),
    ]
    architecture: Annotated[
        str | None,
        Field(
            description="The architecture of a checkpoint that tapr did not write, e.g."
            " `robustbench:Standard`."
        ),
    ] = None
    size: Annotated[
        str | None,
        Field(
            description="The size of a folder's images, `224` or `3x224x224` (channels, height,"
            " width); by default the model's. Or the name of a size in the spec, such as `small`."
        ),
        _LATER,
    ] = None
    crop: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        Field(description="The share of an image's shorter side that is kept by the crop."),
        _LATER,
    ] = None
    interpolation: Annotated[
        str | None,
        Field(description="How the images of a folder are resized: `bilinear`, `bicubic`, ..."),
        _LATER,
    ] = None
    mean: Annotated[
        tuple[float, ...],
        Field(description="The mean of each channel, e.g. `0.485,0.456,0.406`."),
        _LATER,
    ] = ()
    std: Annotated[
        tuple[float, ...],
        Field(description="The standard deviation of each channel, e.g. `0.229,0.224,0.225`."),
        _LATER,
    ] = ()
    methods: Annotated[
        dict[str, Table],  # label -> method and options
        Field(
            description="The methods, separated by commas: labels of the spec, names with options"
            " such as `pest:augmentation=randaugment:lr=0`, or your own `module:Class`."
        ),
        Role(("--methods", "--method"), common=False),
    ]
    seeds: Annotated[
        tuple[int, ...],
        Field(description="The seed of the methods and of the order; separate several by commas."),
        Role(("--seed",), common=False),
    ] = (0,)
    device: Annotated[
        str,
        Field(
            description="The device to run on: `cpu`, `cuda`, ...; `auto` is a GPU if there is one."
        ),
        _UNCOMMON,
    ] = "auto"

    @field_validator("methods", mode="before")
    @classmethod
    def _methods(cls, value: object) -> object:
        return tables(value)

    @field_validator("methods")
    @classmethod
    def _known_options(cls, value: dict[str, Table]) -> dict[str, Table]:
        from tapr.methods import recipe

        if not value:
            raise InputError("expected at least one method, got none")
        for label, table in value.items():
            for key, why in _NOT_OPTIONS.items():
                if key in table:
                    raise InputError(f"expected no {key} for the method {label!r}: {why}")
            if recipe(**table).get("layout") == "probe":
                raise InputError(
                    f"layout 'probe' of the method {label!r} chooses by measuring time, and a"
                    " resumed run must not choose again: name the layout; `tapr doctor MODEL` says"
                    " which is quicker"
                )
        return value

    @field_validator("corruptions")
    @classmethod
    def _known_corruptions(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        from tapr.corruptions import CORRUPTIONS

        for name in value:
            if name != names.CLEAN:
                CORRUPTIONS[name]
        return value

    @field_validator("protocol")
    @classmethod
    def _known_protocol(cls, value: str) -> str:
        from tapr.streams import PROTOCOLS

        PROTOCOLS[value]
        return value

    @field_validator("order")
    @classmethod
    def _known_order(cls, value: str | None) -> str | None:
        from tapr.streams import ORDERS

        if value is not None:
            ORDERS[value]
        return value

    @field_validator("blank")
    @classmethod
    def _known_blank(cls, value: str | None) -> str | None:
        from tapr.streams import BLANKS

        if value is not None:
            BLANKS[value]
        return value


def role(field: str) -> Role:
    """How the command line and the tables of a report treat a field."""
    found = (part for part in Spec.model_fields[field].metadata if isinstance(part, Role))
    return next(found, Role())


def kind(field: str) -> type:
    """The type of the field's value, or of the items of its list: a text, a whole number, ..."""
    leaves = set(_leaves(Spec.model_fields[field].annotation))
    return next(each for each in (bool, int, float, str) if each in leaves)


def is_single(field: str) -> bool:
    """Whether the field has one value, which a flag sets and a sweep may go over."""
    outermost = get_origin(Spec.model_fields[field].annotation)
    return role(field).flags != () and outermost not in (tuple, dict)


def _leaves(annotation: Any) -> Iterator[Any]:
    inside = get_args(annotation)
    if not inside:
        yield annotation
    for each in inside:
        yield from _leaves(each)


def common(spec: Spec) -> dict[str, Any]:
    """The values that must be equal for numbers to be in one table."""
    found = {field: getattr(spec, field) for field in Spec.model_fields if role(field).common}
    return {
        field: value
        for field, value in found.items()
        if not (role(field).later and value == Spec.model_fields[field].default)
    }


def make(values: Mapping[str, Any]) -> Spec:
    """Check the values of a spec; the error names the field."""
    if "over" in values:
        raise InputError("expected one benchmark, got a grid ([over]): tapr sweep runs it")
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


def load(name: str, overrides: Mapping[str, Any], options: Sequence[str] = ()) -> Spec:
    """A ready-made spec by name or a TOML file by path, with some of its values replaced."""
    return make(replaced(values(name), overrides, options))


def replaced(
    values: Mapping[str, Any], overrides: Mapping[str, Any], options: Sequence[str] = ()
) -> dict[str, Any]:
    """The values of a spec with some of them replaced, and options of its methods changed.

    Methods given as a list are labels of the spec itself, or variants. If a folder replaces the
    spec's data, all its images are predicted: the spec's number was meant for its own data.
    """
    made = {**values, **overrides}
    if str(overrides.get("data", "")).startswith("folder:") and "images" not in overrides:
        made.pop("images", None)
    wanted = overrides.get("methods")
    if isinstance(wanted, list | tuple) and isinstance(values.get("methods"), list | Mapping):
        made["methods"] = chosen(wanted, tables(values["methods"]))
    if options:
        made["methods"] = with_options(tables(made.get("methods", {})), options)
    return made


def values(name: str, ready: Registry[str] = READY, size: str | None = None) -> dict[str, Any]:
    """The values of a ready-made spec, or of a TOML file by its path, before they are checked.

    `size` names one of the spec's `[sizes]`, a table of values that replace others.
    """
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot read {name}: {error.strerror or error}") from error
        except ValueError as error:  # not UTF-8, or a name that no file can have
            raise InputError(f"expected TOML in UTF-8 in {name!r}: {error}") from error
    else:
        text = ready[name]
    try:
        found = {"name": Path(name).stem, **tomllib.loads(text)}
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not TOML: {error}") from error
    sizes = found.pop("sizes", {})
    if size is None:
        return found
    if not isinstance(sizes, Mapping) or not sizes:
        raise InputError(f"{name} has no sizes, got --size {size}")
    return replaced(found, Registry(f"size of {name}", sizes)[size])
