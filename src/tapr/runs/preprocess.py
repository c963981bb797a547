"""Preprocessing: images resized, cropped and normalised as the model's config asks."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from tapr.datasets.images import read_image
from tapr.errors import DataError, InputError
from tapr.methods import own
from tapr.models import SHIPPED, TIMM, inputs
from tapr.registry import Registry

INTERPOLATIONS: Registry[Image.Resampling] = Registry(
    "interpolation",
    {name.lower(): method for name, method in Image.Resampling.__members__.items()},
)
# timm's words for what there is to know.
KEYS = ("input_size", "crop_pct", "crop_mode", "interpolation", "mean", "std")
LARGEST = 1 << 28  # pixels of an image before it is cropped; beyond, memory may not suffice
CROP_MODES = Registry("crop_mode", {name: name for name in ("center", "squash")})


class Preprocessing(NamedTuple):
    """How an image is resized, cropped and normalised before the model sees it."""

    size: tuple[int, int, int]  # channels, height, width
    crop: float = 1.0  # the share of the shorter side that is kept
    mode: str = "center"  # "squash" gives up the proportions instead of the edges
    interpolation: str = "bilinear"
    mean: tuple[float, ...] | None = None  # None: as the model does it itself, if it does
    std: tuple[float, ...] | None = None

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Read an image file as [H, W, C]; DataError says why when that fails."""
        return self.prepare(read_image(path))

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize an RGB image until the crop just fits, and crop it to its centre."""
        channels, height, width = self.size
        around = int(height / self.crop), int(width / self.crop)
        factor = max(around[0] / image.height, around[1] / image.width)
        if self.mode == "center":  # rounded down, as torchvision and timm do
            sides = int(image.height * factor + 1e-6), int(image.width * factor + 1e-6)
            around = max(sides[0], around[0]), max(sides[1], around[1])
        if around[0] * around[1] > LARGEST:
            raise DataError(
                f"too long for its width: of {image.height} x {image.width} pixels, it would be "
                f"resized to {around[0]} x {around[1]}"
            )
        if around != (image.height, image.width):
            image = image.resize(around[::-1], INTERPOLATIONS[self.interpolation])
        top, left = round((around[0] - height) / 2), round((around[1] - width) / 2)
        cropped = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(cropped.convert("L") if channels == 1 else cropped)
        return pixels.reshape(height, width, channels)

    def __str__(self) -> str:
        channels, height, width = self.size
        part = f"{self.crop:.3g} of the shorter side, " if self.crop < 1 else ""
        text = f"{self.mode}, {part}{channels} x {height} x {width}, {self.interpolation}"
        if self.mean is None or self.std is None:
            return f"{text}; normalised by the model itself, if at all"
        mean, std = (" ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        return f"{text}; normalised by mean {mean}, deviation {std}"


def config(model: nn.Module, name: str) -> dict[str, Any]:
    """Find the settings of a model's input: timm's `pretrained_cfg`, or a JSON file beside it.

    The file is NAME.json, or config.json in the same folder, in timm's layout.
    """
    found: dict[str, Any] = {}
    for place, layer in model.named_modules():
        said = getattr(layer, "pretrained_cfg", None)
        if isinstance(said, Mapping):
            inner = bool(place) and inputs.find(model) is None  # then what is around it normalises
            found = {k: v for k, v in said.items() if not (inner and k in ("mean", "std"))}
            break
    content = {} if own.is_own(name) or name.startswith(TIMM) else _beside(name)
    nested = content.get("pretrained_cfg")
    return {**found, **content, **(nested if isinstance(nested, Mapping) else {})}


def preprocessing(settings: Mapping[str, Any]) -> Preprocessing:
    """Check settings in timm's words and turn them into a `Preprocessing`."""
    given = {key: settings[key] for key in KEYS if settings.get(key) is not None}
    if "input_size" not in given:
        raise InputError(
            "the model does not say which size of images it takes: expected a size, e.g. --size 224"
        )
    size = _numbers("input_size", given["input_size"], 3)
    if size[0] not in (1, 3) or min(size) < 1 or any(side != int(side) for side in size):
        raise InputError(f"expected a size of 1 or 3 channels, height, width, got {size}")
    crop = given.get("crop_pct", 1.0)
    if not isinstance(crop, int | float) or not 0 < crop <= 1:
        raise InputError(f"expected a crop above 0 and up to 1, got {crop!r}")
    interpolation, mode = given.get("interpolation", "bilinear"), given.get("crop_mode", "center")
    INTERPOLATIONS[interpolation]
    mean, std = given.get("mean"), given.get("std")
    if (mean is None) != (std is None):
        raise InputError("expected mean and deviation (std) together, got one of them")
    channels = int(size[0])
    return Preprocessing(
        (channels, int(size[1]), int(size[2])),
        float(crop),
        CROP_MODES[mode],
        interpolation,
        None if mean is None else _unit("mean", _numbers("mean", mean, channels), least=0.0),
        None if std is None else _unit("std", _numbers("std", std, channels), least=1e-9),
    )


def normalized(model: nn.Module, done: Preprocessing) -> nn.Module:
    """Return the model for images in [0, 1]: with the normalisation inside, if there is one."""
    if done.mean is None or done.std is None:
        return model
    layer = inputs.find(model)
    if layer is None:
        return inputs.in_front(model, done.mean, done.std)
    layer.load_state_dict(inputs.Normalize(done.mean, done.std).state_dict())
    return model


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


def _numbers(key: str, values: object, count: int) -> tuple[float, ...]:
    if isinstance(values, int | float):
        values = [values] * count
    good = isinstance(values, Sequence) and all(isinstance(v, int | float) for v in values)
    if not good or not isinstance(values, Sequence) or len(values) != count:
        raise InputError(f"expected {count} numbers as {key}, got {values!r}")
    return tuple(values)


def _unit(key: str, values: tuple[float, ...], least: float) -> tuple[float, ...]:
    """Check that a mean or deviation is for pixels in [0, 1], not for 0 .. 255."""
    for value in values:
        if not least <= value <= 1:
            hint = "; divide by 255, the images are in [0, 1]" if value > 1 else ""
            raise InputError(f"expected {key} from {least:g} to 1, got {value:g}{hint}")
    return values
