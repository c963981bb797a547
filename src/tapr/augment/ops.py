"""The ops of RandAugment and AugMix, equal to PIL's: pure functions of a batch of images.

Each takes images [B, C, H, W], uint8 or float in [0, 1], of 1 or 3 channels, and, where the op has
one, a parameter per image, [B]. A float image is rounded to the nearest of 256 levels first.

>>> images = torch.tensor([[[[10, 200]]]], dtype=torch.uint8)
>>> solarize(images, torch.tensor([128])).tolist()
[[[[10, 55]]]]
"""

from collections.abc import Callable
from functools import wraps
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from tapr.augment import enhance, geometry, levels, tone
from tapr.errors import InputError


class Move(Protocol):
    """An op that moves pixels, the nearest ones or interpolated ("bilinear")."""

    def __call__(self, images: Tensor, values: Tensor, resample: str = "nearest") -> Tensor:
        """Move the pixels of each image by its value."""


def _values(values: Tensor, images: Tensor, shape: tuple[int, ...] = ()) -> levels.Values:
    if values.shape != (len(images), *shape):
        raise InputError(
            f"expected values of shape {[len(images), *shape]}, got {list(values.shape)}"
        )
    array: levels.Values = values.detach().to("cpu", torch.float64).numpy()
    if not np.isfinite(array).all():
        raise InputError("expected finite values, got an infinite one or NaN")
    return array


def _plain(kernel: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    @wraps(kernel)
    def op(images: Tensor) -> Tensor:
        levels.check(images)
        return levels.from_levels(kernel(levels.to_levels(images)), images.dtype)

    return op


def _valued(
    kernel: Callable[[Tensor, levels.Values], Tensor],
) -> Callable[[Tensor, Tensor], Tensor]:
    @wraps(kernel)
    def op(images: Tensor, values: Tensor) -> Tensor:
        levels.check(images)
        changed = kernel(levels.to_levels(images), _values(values, images))
        return levels.from_levels(changed, images.dtype)

    return op


def _moving(kernel: Callable[[Tensor, levels.Values, str], Tensor], most: float) -> Move:
    @wraps(kernel)
    def op(images: Tensor, values: Tensor, resample: str = "nearest") -> Tensor:
        levels.check(images)
        array = _values(values, images)
        if (np.abs(array) > most).any():
            raise InputError(f"expected values within ±{most:g}, got {np.abs(array).max():g}")
        changed = kernel(levels.to_levels(images), array, resample)
        return levels.from_levels(changed, images.dtype)

    return op


@_plain
def identity(images: Tensor) -> Tensor:
    """Leave the image as it is."""
    return images.clone()


def cutout(images: Tensor, side: Tensor, centre: Tensor) -> Tensor:
    """Hide a square of `side` pixels around `centre` [B, 2], x and y in [0, 1], with grey."""
    levels.check(images)
    places = _values(side, images), _values(centre, images, (2,))
    return levels.from_levels(enhance.cutout(levels.to_levels(images), *places), images.dtype)


autocontrast = _plain(tone.autocontrast)
equalize = _plain(tone.equalize)
invert = _plain(tone.invert)
solarize = _valued(tone.solarize)
solarize_add = _valued(tone.solarize_add)
posterize = _valued(tone.posterize)
brightness = _valued(enhance.brightness)
contrast = _valued(enhance.contrast)
color = _valued(enhance.color)
sharpness = _valued(enhance.sharpness)
rotate = _moving(geometry.rotate, most=1e6)
shear_x = _moving(geometry.shear_x, most=4)
shear_y = _moving(geometry.shear_y, most=4)
translate_x = _moving(geometry.translate_x, most=1e6)
translate_y = _moving(geometry.translate_y, most=1e6)
