"""Sentences for images and options that cannot be right, before anything has moved."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tapr.errors import InputError

ROUNDING = 1e-4


def check_images(images: Tensor, model: nn.Module) -> Tensor:
    """Refuse what is not a float batch [B, C, H, W] in [0, 1] on the model's device."""
    if torch.is_inference_mode_enabled():
        raise InputError(
            "expected a call outside torch.inference_mode(), which forbids the gradients that"
            " adaptation needs; torch.no_grad() is fine"
        )
    if not isinstance(images, Tensor):
        raise InputError(f"expected images as a torch.Tensor, got {type(images).__name__}")
    if images.ndim != 4:
        raise InputError(
            f"expected images of shape [B, C, H, W], got {list(images.shape)}"
            + ("; add a batch axis: images[None]" if images.ndim == 3 else "")
        )
    if not images.is_floating_point():
        raise InputError(
            f"expected float images in [0, 1], got {images.dtype}; divide by 255: images / 255"
        )
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device != images.device:
        raise InputError(
            f"expected images on {parameter.device}, where the model is, got {images.device}"
        )
    images = images.clone() if images.is_inference() else images.detach()
    return _in_range(images) if images.numel() else images


def _in_range(images: Tensor) -> Tensor:
    """The images, if they are finite and in [0, 1]; what rounding put just outside is put back."""
    low, high = (value.item() for value in images.aminmax())
    if not (abs(low) < math.inf and abs(high) < math.inf):
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise InputError(f"expected finite images, got NaN or infinity in {bad} of {len(images)}")
    if low < -ROUNDING:
        raise InputError(
            f"expected images in [0, 1], got minimum {low:g}; if they are normalised already, make"
            " the normalisation the first layer of the model"
        )
    if high > 1 + ROUNDING:
        hint = "; divide by 255" if high > 2 else ""
        raise InputError(f"expected images in [0, 1], got maximum {high:g}{hint}")
    return images.clamp(0, 1) if low < 0 or high > 1 else images


def explain_failure(error: Exception, images: Tensor, model: nn.Module) -> None:
    """Turn a failure inside the model into a sentence, where the images are to blame."""
    if "more than 1 value per channel" in str(error):
        raise InputError(
            f"a batch of {len(images)} gives a BatchNorm layer one value per channel, whose own"
            " statistics are undefined: expected a larger batch, or statistics='source'"
        ) from error
    parameter = next(model.parameters(), None)
    mixed = parameter is not None and parameter.dtype != images.dtype and "type" in str(error)
    if parameter is not None and mixed:
        raise InputError(
            f"expected images of {parameter.dtype}, as the model's parameters are, got"
            f" {images.dtype}; convert them: images.to({parameter.dtype})"
        ) from error
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels != images.shape[1]:
        raise InputError(
            f"expected images with {first.in_channels} channels, which the model's first"
            f" convolution takes, got {images.shape[1]}"
        ) from error


# Option -> the least value it may have, and the one it must stay below.
RANGES: Mapping[str, tuple[float, float]] = {
    "lr": (0, math.inf),
    "momentum": (0, 1),
    "weight_decay": (0, math.inf),
    "consistency_weight": (0, math.inf),
    "entropy_weight": (0, math.inf),
    "threshold": (0, math.inf),
    "margin": (0, math.inf),
    "pivot": (0, math.inf),
    "fisher": (0, math.inf),
    "recovery": (0, math.inf),
    "radius": (0, math.inf),
    "noise": (0, 1),
    "drop": (-2, 1),
    "pseudo_labels": (0, math.inf),
    "diversity": (0, math.inf),
}
SHARES = ("confidence", "pull", "upright")  # numbers from 0 to 1
ABOVE_0 = ("exponent", "temperature")
OPTIONAL = ("margin", "fisher", "recovery", "noise")  # None: the method decides
# Option -> smallest whole number it may be.
COUNTS: Mapping[str, int] = {
    **{"steps": 1, "views": 0, "seed": 0},
    **{"every": 1, "copies": 1, "source_batch": 1, "source_count": 1},
}
FLAGS = (
    *("episodic", "redraw", "compile", "amp", "inplace"),
    *("forget", "weighting", "agreement", "detach", "full_batch"),
)


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse values of the wrong kind or outside their range; the error names the option.

    An option means the same in every method, yours included, so that its values are checked here.
    """
    for name, (low, high) in RANGES.items():
        value = options.get(name, low)
        if value is None and name in OPTIONAL:
            continue
        if not isinstance(value, int | float) or not low <= value < high:
            raise InputError(f"expected {name} of at least {low} and below {high}, got {value!r}")
    for name in SHARES:
        if not isinstance(options.get(name, 0), int | float) or not 0 <= options.get(name, 0) <= 1:
            raise InputError(f"expected {name} from 0 to 1, got {options[name]!r}")
    for name in ABOVE_0:
        value = options.get(name, 1)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise InputError(f"expected {name} above 0, got {value!r}")
    for name, least in COUNTS.items():
        value = options.get(name, least)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise InputError(
                f"expected {name} to be a whole number of at least {least}, got {value!r}"
            )
    for name in FLAGS:
        if not isinstance(options.get(name, False), bool):
            raise InputError(f"expected {name} to be True or False, got {options[name]!r}")
    if not isinstance(options.get("augmentation_options", {}), Mapping):
        raise InputError(
            f"expected augmentation_options as a mapping, got {options['augmentation_options']!r}"
        )
