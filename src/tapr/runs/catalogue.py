"""Names and numbers in, objects out: the only place where a string becomes an adapter.

A method is a builder and its presets; a preset is a table of options. The effective options travel
with the adapter as `adapter.recipe`, into saved states and records.
"""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tapr import models, names
from tapr.adapters import Adapter, GradientAdapter, Norm, Schedule, Source
from tapr.augment import AUGMENTATIONS, Augmentation, AugMix, RandAugment, Views
from tapr.errors import InputError, StateError, UnknownNameError
from tapr.models import state
from tapr.models.norm import Statistics
from tapr.models.scope import SCOPES, Scope
from tapr.objectives import CONSISTENCIES, Entropy, Objective, Weighted
from tapr.registry import Registry, suggest
from tapr.runs import own
from tapr.runs.presets import NORM, PEST, PLAIN, RELEASED, SOURCE, TENT, Options, check_values

AUGMENTATION_PRESETS: Registry[Mapping[str, Callable[..., Augmentation]]] = Registry(
    "augmentation preset",
    {
        "paper": AUGMENTATIONS,
        "released": Registry(
            AUGMENTATIONS.kind,
            {
                **AUGMENTATIONS,
                "augmix": AugMix.released,
                "randaugment": RandAugment.released,
            },
        ),
    },
)


_WORDS = {"true": True, "false": False, "none": None}


class Method(NamedTuple):
    """How a method is built, and its protocols by name."""

    build: Callable[..., Adapter]
    presets: Registry[Options]


def adapt(
    model: nn.Module,
    method: str = "pest",
    *,
    preset: str = "paper",
    seed: int = 0,
    inplace: bool = False,
    **options: Any,
) -> Adapter:
    """Wrap a classifier so that it adapts while it predicts: call the result like the model.

    The model is copied, unless `inplace`. The options and their defaults are the preset's:
    `tapr.presets("pest")` shows them. `module:Class` names an adapter class of your own.

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    >>> adapter = adapt(model, steps=1)
    >>> adapter(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    effective = _effective(method, preset, options)
    adapter = _find(method).build(model, effective, seed=seed, inplace=inplace)
    adapter.recipe = _table(method, preset, seed, effective)
    return adapter


def recipe(
    method: str = "pest", *, preset: str = "paper", seed: int = 0, **options: Any
) -> dict[str, Any]:
    """The whole effective table behind `adapt` with these arguments, ready for JSON.

    >>> recipe("tent", lr=0.01)["lr"], recipe("tent")["lr"]
    (0.01, 0.001)
    """
    return _table(method, preset, seed, _effective(method, preset, options))


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The method and the options in a variant, written as `NAME[:key=value]...`.

    >>> parse("pest:augmentation=randaugment:lr=0")
    ('pest', {'augmentation': 'randaugment', 'lr': 0})
    >>> parse("module:Class:margin=0.3")
    ('module:Class', {'margin': 0.3})
    """
    parts = names.pieces(text, ":")
    method = ":".join(part for part in parts if "=" not in part)
    options: dict[str, Any] = {}
    for part in (part for part in parts if "=" in part):
        key, _, written = part.partition("=")
        if not key.strip() or not written.strip():
            raise InputError(f"expected a method as NAME[:key=value]..., got {text!r}")
        options[key.strip()] = value(written.strip())
    if not method:
        raise InputError(f"expected a method as NAME[:key=value]..., got {text!r}")
    return method, options


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


def load(path: Path | str, model: nn.Module, **again: Any) -> Adapter:
    """Go on from a saved state, on the same source model.

    What was your own (`method="module:Class"`, an augmentation, a scope) has to be passed again: a
    file never decides which code runs.
    """
    _, metadata = state.read(path)
    saved = metadata.get("recipe")
    if not isinstance(saved, dict) or "method" not in saved:
        raise StateError(
            f"{path} was saved by an adapter that tapr.adapt did not make; make it again yourself,"
            " then adapter.load(path)"
        )
    mine = [name for name, value in saved.items() if _is_object(value)]
    if own.is_own(saved["method"]):
        mine.insert(0, "method")
    missing = [name for name in mine if name not in again]
    if missing:
        raise StateError(
            f"{path} was saved with {missing[0]}={saved[missing[0]]}, which is your own; pass it"
            f" again: tapr.load(path, model, {missing[0]}=...)"
        )
    return adapt(model, **{**saved, **again}).load(path)


def find_model(name: str, architecture: str | None = None) -> nn.Module:
    """A shipped model by name, a checkpoint by path, or `module:function` that returns yours."""
    if own.is_own(name) and "/" not in name and not name.startswith(models.TIMM):
        return own.model(name)
    return models.load(name, architecture=architecture)


def presets(method: str) -> Mapping[str, Options]:
    """The protocols of a method by name, each with all its options.

    >>> presets("pest")["paper"]["steps"]
    5
    """
    return _find(method).presets


def _find(method: str) -> Method:
    if not own.is_own(method):
        return METHODS[method]
    kind = own.adapter(method)
    return Method(partial(_own, kind), _one(own.options(kind)))


def _effective(method: str, preset: str, options: Options) -> dict[str, Any]:
    effective = {**_find(method).presets[preset]}
    for name, value in options.items():
        if name not in effective:
            known = [*effective, "preset", "seed", "inplace"]
            raise UnknownNameError(
                f"unknown option {name!r} of method {method!r}; {suggest(name, known)}"
            )
        effective[name] = value
    if not own.is_own(method):
        check_values(effective)
    return effective


def _table(method: str, preset: str, seed: int, effective: Options) -> dict[str, Any]:
    recorded = {
        name: _recorded(value)
        for name, value in effective.items()
        if name not in PLAIN or value != PLAIN[name]
    }
    return {"method": method, "preset": preset, "seed": seed, **recorded}


def _own(kind: type[Adapter], model: nn.Module, options: Options, **common: Any) -> Adapter:
    return kind(model, **options, **common)


def _source(model: nn.Module, options: Options, **common: Any) -> Adapter:
    return Source(model, layout=options["layout"], **common)


def _norm(model: nn.Module, options: Options, **common: Any) -> Adapter:
    return Norm(model, statistics=_statistics(options), layout=options["layout"], **common)


def _gradient(model: nn.Module, options: Options, **common: Any) -> Adapter:
    """Tent, PEST and what lies between: they differ in their options alone."""
    return GradientAdapter(
        model,
        _objective(options),
        _optimizing(options),
        views=_views(options),
        scope=_scope(model, options["scope"]),
        statistics=_statistics(options),
        schedule=Schedule(*(options[name] for name in Schedule._fields)),
        **{name: options[name] for name in ("max_grad_norm", "layout", "compile", "amp")},
        **common,
    )


def _objective(options: Options) -> Objective:
    weights = {"consistency": options.get("consistency_weight", 0.0)}
    weights["entropy"] = options["entropy_weight"]
    if weights["consistency"] and not options["views"]:
        raise InputError("expected views >= 1 for a consistency between views, got 0")
    parts: list[tuple[float, Objective]] = []
    if weights["consistency"]:
        parts.append((weights["consistency"], CONSISTENCIES[options["consistency"]]()))
    if weights["entropy"]:
        parts.append((weights["entropy"], Entropy()))
    return Weighted(parts)


def _optimizing(options: Options) -> Callable[..., torch.optim.Optimizer]:
    common = {name: options[name] for name in ("lr", "weight_decay")} | {"fused": True}
    momentum = options["momentum"]
    optimizers: Registry[Callable[..., torch.optim.Optimizer]] = Registry(
        "optimizer",
        {
            "sgd": partial(torch.optim.SGD, momentum=momentum, **common),
            "adam": partial(torch.optim.Adam, betas=(momentum, 0.999), **common),
        },
    )
    return optimizers[options["optimizer"]]


def _views(options: Options) -> Views | None:
    if not options.get("views"):
        return None
    augmentation = options["augmentation"]
    if not (hasattr(augmentation, "sample") and hasattr(augmentation, "transform")):
        make = AUGMENTATION_PRESETS[options["augmentation_preset"]][augmentation]
        given = options["augmentation_options"]
        known = list(signature(make).parameters)
        for name in given:
            if name not in known:
                raise UnknownNameError(
                    f"unknown option {name!r} of augmentation {augmentation!r}; "
                    + (suggest(name, known) if known else "this preset of it takes none")
                )
        augmentation = make(**given)
    return Views(augmentation, options["views"])


def _scope(model: nn.Module, scope: str | Scope) -> Scope:
    return scope if callable(scope) else SCOPES[scope](model)


def _statistics(options: Options) -> Statistics:
    return Statistics(
        options["statistics"],
        options.get("feed", "views"),
        options["statistics_momentum"],
        options["prior"],
    )


def _recorded(value: object) -> object:
    plain = value is None or isinstance(value, str | int | float | bool | dict)
    return value if plain else f"own:{type(value).__name__}"


def _is_object(value: object) -> bool:
    return isinstance(value, str) and value.startswith("own:")


def _one(options: Options) -> Registry[Options]:
    return Registry("preset", {"paper": options})


METHODS: Registry[Method] = Registry(
    "method",
    {
        "source": Method(_source, _one(SOURCE)),
        "norm": Method(_norm, _one(NORM)),
        "tent": Method(
            _gradient,
            Registry("preset", {"paper": TENT, "released": {**TENT, "predict": "after"}}),
        ),
        "pest": Method(
            _gradient, Registry("preset", {"paper": PEST, "released": {**PEST, **RELEASED}})
        ),
    },
)
