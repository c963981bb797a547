"""Errors for images and options that cannot be right, raised before anything has changed."""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tapr.errors import InputError, ModelError, TaprError
from tapr.models.inputs import Normalize
from tapr.models.state import FLOATS, oddity

ROUNDING = 1e-4
HINTS = {
    "nested": "; make them equal in size and torch.stack them",
    "quantized": "; convert them: images.dequantize()",
    "of layout torch.sparse_coo": "; convert them: images.to_dense()",
}


def check_images(images: Tensor, model: nn.Module, normalized: Normalize | None = None) -> Tensor:
    """Refuse what is not a float batch [B, C, H, W] in [0, 1] on the model's device.

    If the images are `normalized`, that is undone first, so that they are in [0, 1] again.
    """
    if torch.is_inference_mode_enabled():
        raise InputError(
            "expected a call outside torch.inference_mode(), which forbids the gradients that"
            " adaptation needs; torch.no_grad() is fine"
        )
    if not isinstance(images, Tensor):
        raise InputError(f"expected images as a torch.Tensor, got {type(images).__name__}")
    _check_kind(images)
    if images.ndim != 4:
        raise InputError(
            f"expected images of shape [B, C, H, W], got {list(images.shape)}"
            + ("; add a batch axis: images[None]" if images.ndim == 3 else "")
        )
    if 0 in images.shape[1:]:
        raise InputError(
            f"expected images of at least one channel and one pixel, got shape {list(images.shape)}"
        )
    parameter = next(model.parameters(), None)
    if parameter is not None and parameter.device != images.device:
        raise InputError(
            f"expected images on {parameter.device}, where the model is, got {images.device}"
        )
    images = images.clone() if images.is_inference() else images.detach()
    if not images.numel():
        return images
    return _in_range(images) if normalized is None else _pixels(images, normalized)


def _pixels(images: Tensor, normalized: Normalize) -> Tensor:
    """Undo the normalisation of images; refuse images that were normalised by other numbers."""
    if images.shape[1] != len(normalized.mean):
        raise InputError(
            f"expected images with {len(normalized.mean)} channels, got {images.shape[1]}"
        )
    pixels = normalized.undone(images)
    low, high = (float(value) for value in pixels.aminmax())
    slack = max(ROUNDING, 8 * torch.finfo(images.dtype).eps)
    if not (-slack <= low and high <= 1 + slack):
        raise InputError(
            "expected images normalised by the given mean and std, whose pixels then lie in"
            f" [0, 1], got pixels from {low:g} to {high:g}; are these the numbers that your"
            " pipeline uses?"
        )
    return pixels.clamp(0, 1)


def _check_kind(images: Tensor) -> None:
    """Refuse tensors that are no plain array of numbers in memory."""
    odd = oddity(images)
    if odd:
        raise InputError(
            "expected images as a plain tensor of floats in [0, 1], got one"
            f" {odd}{HINTS.get(odd, '')}"
        )
    if images.dtype not in FLOATS:
        hint = "convert them: images.float()" if images.is_floating_point() else ""
        if not images.is_floating_point() and not images.is_complex():
            hint = "divide by 255: images / 255"
        raise InputError(
            f"expected float images in [0, 1], got {images.dtype}" + (f"; {hint}" if hint else "")
        )


def _in_range(images: Tensor) -> Tensor:
    """Refuse images that are not finite or not in [0, 1]; clip what rounding put just outside."""
    try:
        low, high = (value.item() for value in images.aminmax())
    except (RuntimeError, TypeError) as error:  # a subclass without values, or memory that is gone
        kind, why = type(images).__name__, str(error).partition("\n")[0]
        raise InputError(f"expected images whose values can be read, got {kind}: {why}") from error
    if not (abs(low) < math.inf and abs(high) < math.inf):
        bad = int((~torch.isfinite(images)).flatten(1).any(1).sum())
        raise InputError(f"expected finite images, got NaN or infinity in {bad} of {len(images)}")
    if low < -ROUNDING:
        raise InputError(
            f"expected images in [0, 1], got minimum {low:g}; they look normalised already: pass"
            " images='normalized', mean and std to tapr.adapt, or let it normalise them"
        )
    if high > 1 + ROUNDING:
        hint = "; divide by 255" if high > 2 else ""
        raise InputError(f"expected images in [0, 1], got maximum {high:g}{hint}")
    return images.clamp(0, 1) if low < 0 or high > 1 else images


@contextmanager
def explained(images: Tensor, model: nn.Module) -> Iterator[None]:
    """Turn a failure inside the model into a `ModelError` with an explanation.

    Our own errors pass through, and so does an out-of-memory error: the caller may handle it.
    """
    try:
        yield
    except (TaprError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        blame = _blame(error, images, model)
        if blame:
            raise InputError(blame) from error
        raise ModelError(
            f"the model failed on images of shape {list(images.shape)}: {type(error).__name__}:"
            f" {str(error).strip() or 'without a message'}"
        ) from error


def _blame(error: Exception, images: Tensor, model: nn.Module) -> str | None:
    """What is wrong with the images, if they are the cause of a failure."""
    if "more than 1 value per channel" in str(error):
        return (
            f"a batch of {len(images)} gives a BatchNorm layer one value per channel, whose own"
            " statistics are undefined: expected a larger batch, or statistics='source'"
        )
    parameter = next(model.parameters(), None)
    kind = images.dtype if parameter is None else parameter.dtype
    if kind in FLOATS and kind != images.dtype and "type" in str(error):
        return (
            f"expected images of {kind}, as the model's parameters are, got {images.dtype};"
            f" convert them: images.to({kind})"
        )
    first = next((layer for layer in model.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is not None and first.in_channels != images.shape[1]:
        return (
            f"expected images with {first.in_channels} channels, which the model's first"
            f" convolution takes, got {images.shape[1]}"
        )
    return None


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
    "alignment": (0, math.inf),
}
SHARES = ("confidence", "keep", "one_class", "pull", "upright")  # numbers from 0 to 1
ABOVE_0 = ("exponent", "temperature", "spread")
OPTIONAL = ("margin", "fisher", "recovery", "noise")  # may be None: the method decides
# Option -> the smallest whole number that it may be.
COUNTS: Mapping[str, int] = {
    **{"steps": 1, "views": 0, "seed": 0},
    **{"every": 1, "copies": 1, "source_batch": 1, "source_count": 1},
    **{"prompts": 1, "population": 6},
}
FLAGS = (
    *("episodic", "redraw", "compile", "amp", "inplace"),
    *("forget", "weighting", "agreement", "detach", "full_batch", "learn", "shift"),
)
MOST = 2**63  # the limit of whole numbers


def is_number(value: object) -> bool:
    """Whether this is a finite number that a float can hold."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse values of the wrong kind or outside their range; the error names the option.

    An option means the same in every method, yours included, so that we can check its values here.
    """
    for name, (low, high) in RANGES.items():
        value = options.get(name, low)
        if value is None and name in OPTIONAL:
            continue
        if not is_number(value) or not low <= value < high:
            raise InputError(f"expected {name} of at least {low} and below {high}, got {value!r}")
    for name in SHARES:
        if not is_number(options.get(name, 0)) or not 0 <= options.get(name, 0) <= 1:
            raise InputError(f"expected {name} from 0 to 1, got {options[name]!r}")
    for name in ABOVE_0:
        value = options.get(name, 1)
        if not is_number(value) or not value > 0:
            raise InputError(f"expected {name} above 0, got {value!r}")
    for name, least in COUNTS.items():
        value = options.get(name, least)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least <= value < MOST:
            raise InputError(
                f"expected {name} to be a whole number of at least {least}, got {value!r:.40}"
            )
    for name in FLAGS:
        if not isinstance(options.get(name, False), bool):
            raise InputError(f"expected {name} to be True or False, got {options[name]!r}")
    if not isinstance(options.get("augmentation_options", {}), Mapping):
        raise InputError(
            f"expected augmentation_options as a mapping, got {options['augmentation_options']!r}"
        )
