"""Preprocessing: how images are resized, cropped and normalised, from the model's config."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from tapr import methods
from tapr.datasets.preprocessing import CROP_MODES, INTERPOLATIONS, Preprocessing
from tapr.errors import DataError, InputError
from tapr.methods import own
from tapr.models import PACKAGED, SHIPPED, contract, inputs
from tapr.runs.device import usable
from tapr.runs.spec import Spec

# The settings, by timm's names.
KEYS = ("input_size", "crop_pct", "crop_mode", "interpolation", "mean", "std")


def config(model: nn.Module, name: str) -> dict[str, Any]:
    """Find the settings of a model's input: its own config, or that of a JSON file beside it.

    The file is NAME.json, or config.json in the same folder, in timm's layout.
    """
    found = contract.own(model)
    content = {} if own.is_own(name) or name in PACKAGED else _beside(name)
    nested = content.get("pretrained_cfg")
    return {**found, **content, **(nested if isinstance(nested, Mapping) else {})}


class Prepared(NamedTuple):
    """A model by name, ready for images in [0, 1], and the facts about its input."""

    model: nn.Module
    preprocessing: Preprocessing | None  # None if no size is known
    config: dict[str, Any]  # the model's own config, by timm's names
    notes: tuple[str, ...]  # contradictions between the config and the request

    @property
    def fit(self) -> Preprocessing:
        """The preprocessing; an error when no size is known."""
        return self.preprocessing or preprocessing(self.config)


def prepared(
    name: str,
    architecture: str | None = None,
    given: Mapping[str, Any] | None = None,
    device: str = "cpu",
) -> Prepared:
    """Find a model by name; `given` settings, by timm's names, override its config."""
    model = methods.find_model(name, architecture).eval()
    said = config(model, name)
    given = {key: value for key, value in (given or {}).items() if value is not None}
    settings = {**said, **given}
    sized = settings.get("input_size") is not None or {*given} - {"mean", "std"}
    done = preprocessing(settings) if sized else None
    mean, std = (done.mean, done.std) if done else inputs.normalisation(settings)
    whole = inputs.normalized(model, mean, std).to(usable(device))
    return Prepared(whole, done, said, tuple(_contradictions(said, given)))


def settings(spec: Spec) -> dict[str, Any]:
    """The settings of a spec for the input of its model, by timm's names."""
    return {
        "input_size": size_of(spec.size),
        "crop_pct": spec.crop,
        "interpolation": spec.interpolation,
        "mean": spec.mean or None,
        "std": spec.std or None,
    }


def recorded(fit: Mapping[str, Any] | None) -> Preprocessing | None:
    """How the images of a run were resized and cropped, from its record."""
    if not fit:
        return None
    channels, height, width = fit["size"]
    return Preprocessing((channels, height, width), fit["crop"], fit["mode"], fit["interpolation"])


def preprocessing(settings: Mapping[str, Any]) -> Preprocessing:
    """Check settings by timm's names and turn them into a `Preprocessing`."""
    given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
    if "input_size" not in given:
        raise InputError(
            "the model does not say which size of images it takes: expected a size, e.g. --size 224"
        )
    size = inputs.numbers("input_size", given["input_size"], 3)
    if size[0] not in (1, 3) or min(size) < 1 or any(side != int(side) for side in size):
        raise InputError(f"expected a size of 1 or 3 channels, height, width, got {size}")
    crop = given.get("crop_pct", 1.0)
    if not isinstance(crop, int | float) or not 0 < crop <= 1:
        raise InputError(f"expected a crop above 0 and up to 1, got {crop!r}")
    interpolation, mode = given.get("interpolation", "bilinear"), given.get("crop_mode", "center")
    INTERPOLATIONS[interpolation]
    channels = int(size[0])
    return Preprocessing(
        (channels, int(size[1]), int(size[2])),
        float(crop),
        CROP_MODES[mode],
        interpolation,
        *inputs.normalisation(given, channels),
    )


def size_of(text: str | None) -> list[int] | None:
    """Channels, height and width from a text like `224` or `3x224x224`."""
    if text is None:
        return None
    try:
        sides = [int(part) for part in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) == 1:
        return [3, sides[0], sides[0]]
    if len(sides) == 3:
        return sides
    raise InputError(f"expected a size like 224 or 3x224x224, got {text!r}")


def _contradictions(said: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    for key, count in (("input_size", 3), ("mean", None), ("std", None)):
        if said.get(key) is None or given.get(key) is None:
            continue
        own, asked = (inputs.numbers(key, each[key], count) for each in (said, given))
        if own != asked:
            yield f"the model's config has {key} {list(own)}, you gave {list(asked)}: yours is used"


def _beside(name: str) -> dict[str, Any]:
    weights = SHIPPED[name] if name in SHIPPED else Path(name)
    for path in (weights.with_suffix(".json"), weights.parent / "config.json"):
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is not JSON: {error}") from error
        if isinstance(content, dict):
            return content
        raise DataError(f"expected a JSON object in {path}, got {type(content).__name__}")
    return {}
