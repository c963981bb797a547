"""Makes adapters from names and options: the only place where a string becomes an adapter.

A method is a class; its options are the parameters of its constructor, and `presets` is an
attribute. The effective options are kept as `adapter.recipe`, in saved states and in records.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from tapr import models, names
from tapr.adapters import Adapter, Learner, Needs, Passes, syncing
from tapr.adapters.checks import check_options
from tapr.errors import InputError, ModelError, StateError, UnknownNameError
from tapr.methods import own
from tapr.models import contract, inputs, state
from tapr.registry import Registry, suggest

_log = logging.getLogger("tapr")
Options = Mapping[str, Any]
PAPER = "paper"  # the preset of a method's own defaults
# Options that are left out of recipes if they have their defaults, which change nothing.
UNSAID = (
    *("layout", "compile", "amp", "budget", "votes", "weights", "head", "share", "window"),
    *("guard", "sync"),
)
_WORDS = {"true": True, "false": False, "none": None}
MOST_STEPS = 100  # the most that a recipe from a file may ask for


def adapt(
    model: nn.Module,
    method: str = "steady",
    *,
    preset: str = PAPER,
    seed: int = 0,
    inplace: bool = False,
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    images: str = "pixels",
    preprocessing: object = None,
    **options: Any,
) -> Adapter:
    """Wrap a classifier so that it adapts while it predicts: call the result like the model.

    The default, `steady`, needs forward passes only and works with any batch size (docs/steady.md).
    The model is copied, unless `inplace`. The options and their defaults are the preset's:
    `tapr.presets("pest")` shows them. `module:Class` names your own method.

    Images are pixels in [0, 1]. If the model expects them normalised, pass its `mean` and `std`:
    the adapter then normalises them. With `images="normalized"` you give images that are already
    normalised by these numbers. Instead of numbers, `preprocessing` takes a config: "model" for the
    model's own (timm's `pretrained_cfg`), an image processor of Hugging Face, or torchvision's
    `weights`.

    >>> import torch
    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 10))
    >>> adapter = adapt(model)
    >>> adapter(torch.rand(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"expected a torch.nn.Module, got {type(model).__name__}"
            + ("; tapr.models.load gets one by its name" if isinstance(model, str) else "")
        )
    method, preset, effective = _effective(method, preset, options)
    check_options({"seed": seed, "inplace": inplace})
    model = syncing.unwrapped(model)
    agreed = contract.agreed(model, mean, std, images, preprocessing)
    if unused := contract.unused(model, agreed):
        _log.warning(unused)
    if inputs.find(model) is None and agreed.mean is not None and agreed.std is not None:
        model = inputs.in_front(model, agreed.mean, agreed.std)
    adapter = own.method(method)(model, **effective, seed=seed, inplace=inplace)
    adapter.takes = agreed.images
    adapter.recipe = {**_table(method, preset, seed, effective), **agreed.table()}
    return adapter


def recipe(
    method: str = "steady", *, preset: str = PAPER, seed: int = 0, **options: Any
) -> dict[str, Any]:
    """All options that `adapt` would use with these arguments, ready for JSON.

    >>> recipe("tent", lr=0.01)["lr"], recipe("tent")["lr"]
    (0.01, 0.001)
    """
    method, preset, effective = _effective(method, preset, options)
    check_options({"seed": seed})
    return _table(method, preset, seed, effective)


def parse(text: str) -> tuple[str, dict[str, Any]]:
    """The method and the options in a variant, written as `NAME[:key=value]...`.

    >>> parse("pest:augmentation=randaugment:lr=0")
    ('pest', {'augmentation': 'randaugment', 'lr': 0})
    >>> parse("module:Class:margin=0.3")
    ('module:Class', {'margin': 0.3})
    """
    parts = names.pieces(text, ":") if isinstance(text, str) else []
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
    """The value of a text on the command line: a word, a number, or a table as JSON.

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


def load(
    path: Path | str, model: nn.Module, *, most_steps: int = MOST_STEPS, **again: Any
) -> Adapter:
    """Resume from a saved state, on the same source model.

    Pass your own parts again (`method="module:Class"`, an augmentation, a scope): a file never
    decides which code runs. A file that asks for more than `most_steps` steps or views is refused.
    """
    _, metadata = state.read(path)
    saved = metadata.get("recipe")
    if not isinstance(saved, dict) or not isinstance(saved.get("method"), str):
        raise StateError(
            f"{path} was saved by an adapter that tapr.adapt did not make; make it again yourself,"
            " then adapter.load(path)"
        )
    mine = [name for name, value in saved.items() if _is_object(value)]
    if not own.is_shipped(saved["method"]):
        mine.insert(0, "method")
    missing = [name for name in mine if name not in again]
    if missing:
        raise StateError(
            f"{path} was saved with {missing[0]}={saved[missing[0]]}, which is your own; pass it"
            f" again: tapr.load(path, model, {missing[0]}=...)"
        )
    for name in ("inplace", "model"):
        if name in saved:
            raise StateError(
                f"{path} asks for {name}, which only the caller may choose: pass it to tapr.load"
            )
    for name in ("steps", "views"):
        number = saved.get(name, 0)
        if isinstance(number, int) and number > most_steps and name not in again:
            raise StateError(
                f"{path} asks for {number} {name} a batch, more than most_steps={most_steps}; pass"
                " tapr.load a larger one if that is meant"
            )
    try:
        adapter = adapt(model, **{**saved, **again})
    except InputError as error:
        raise StateError(f"{path} has a recipe that does not fit: {error}") from error
    return adapter.load(path)


def find_model(name: str, architecture: str | None = None) -> nn.Module:
    """A shipped model by name, a checkpoint by path, or `module:function` that returns yours."""
    if own.is_own(name) and "/" not in name and not name.startswith(models.FOREIGN):
        return own.model(name)
    return models.load(name, architecture=architecture)


def presets(method: str) -> Mapping[str, Options]:
    """The presets of a method by name, each with all its options.

    >>> presets("pest")["paper"]["steps"]
    5
    """
    kind = own.method(method)
    defaults = own.options(kind)
    changed = {name: {**defaults, **changes} for name, changes in kind.presets.items()}
    return Registry("preset", {PAPER: defaults, **changed})


class About(NamedTuple):
    """Facts about a method: what it is, costs and needs."""

    name: str
    title: str
    summary: str
    paper: str
    passes: Passes  # per image, at most
    needs: Needs
    presets: Mapping[str, Options]


class _Tiny(nn.Module):
    """A model with all that a method may need: batch norm, a transformer, and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Sequential()
        self.patch_embed.add_module("proj", nn.Conv2d(3, 4, 3))
        self.patch_embed.add_module("norm", nn.BatchNorm2d(4))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, 4))
        self.blocks = nn.Sequential(nn.TransformerEncoderLayer(4, 1, 4, batch_first=True))
        self.norm, self.head = nn.LayerNorm(4), nn.Linear(4, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits [B, 2]."""
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        tokens = torch.cat((self.cls_token.expand(len(patches), -1, -1), patches), 1)
        logits: torch.Tensor = self.head(self.norm(self.blocks(tokens))[:, 0])
        return logits

    def rotation(self, images: torch.Tensor) -> torch.Tensor:
        """Logits [B, 4], twice as many as there are classes."""
        logits: torch.Tensor = self(images)
        return logits.repeat(1, 2)


def about(method: str) -> About:
    """The facts about a method: what it is, costs and needs.

    >>> about("tent").passes
    Passes(forward=1, backward=1)
    """
    kind = own.method(method)
    summary = (kind.__doc__ or "").strip().partition("\n")[0]
    title = kind.title or kind.__name__
    needed: dict[str, Any] = {"source_images": torch.zeros(2, 3, 3, 3)}
    passes = adapt(_Tiny(), method, **(needed if kind.needs.source_images else {})).passes
    return About(method, title, summary, kind.paper, passes, kind.needs, presets(method))


def _effective(variant: str, preset: str, options: Options) -> tuple[str, str, dict[str, Any]]:
    """The method of a variant, its preset, and all its options; `options` override the text's."""
    method, written = parse(variant)
    preset = str(written.pop("preset", preset))
    effective = {**presets(method)[preset]}
    for name, value in {**written, **options}.items():
        if name not in effective:
            known = [*effective, "preset", "seed", "inplace"]
            raise UnknownNameError(
                f"unknown option {name!r} of method {method!r}; {suggest(name, known)}"
            )
        effective[name] = value
    check_options(effective)
    return method, preset, effective


def _table(method: str, preset: str, seed: int, effective: Options) -> dict[str, Any]:
    plain, defaults = own.options(Learner), presets(method)[PAPER]
    idle = () if own.method(method).adapts else ("guard",)  # nothing is guarded
    recorded = {
        name: _recorded(value)
        for name, value in effective.items()
        if name not in idle and (name not in UNSAID or not value == plain[name] == defaults[name])
    }
    return {"method": method, "preset": preset, "seed": seed, **recorded}


def _recorded(value: object) -> object:
    plain = value is None or isinstance(value, str | int | float | bool | dict | list)
    if isinstance(value, tuple):
        return list(value)
    return value if plain else f"own:{type(value).__name__}"


def _is_object(value: object) -> bool:
    return isinstance(value, str) and value.startswith("own:")
