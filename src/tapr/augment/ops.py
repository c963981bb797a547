"""The ops of RandAugment and AugMix, equal to PIL's: pure functions of a batch of images.

Each takes images [B, C, H, W], uint8 or float in [0, 1], of 1 or 3 channels, and one parameter per
image, [B]. A float image is rounded to the nearest of 256 levels first.

>>> images = torch.tensor([[[[10, 200]]]], dtype=torch.uint8)
>>> solarize(images, torch.tensor([128])).tolist()
[[[[10, 55]]]]
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

import torch
from torch import Tensor

from tapr.augment import enhance, geometry, levels, tone
from tapr.augment.grouped import NAMES as NAMES
from tapr.errors import InputError

P = ParamSpec("P")


def _public(
    kernel: Callable[Concatenate[Tensor, P], Tensor],
) -> Callable[Concatenate[Tensor, P], Tensor]:
    """A kernel on levels as a function of any images: arguments checked, dtype kept."""

    @wraps(kernel)
    def op(images: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        levels.check(images)
        values = [_values(arg, len(images)) if isinstance(arg, Tensor) else arg for arg in args]
        changed = kernel(levels.to_levels(images), *values, **kwargs)  # type: ignore[arg-type]
        return levels.from_levels(changed, images.dtype)

    return op


def _values(values: Tensor, count: int) -> Tensor:
    if not values.ndim or len(values) != count:
        raise InputError(f"expected {count} values, one per image, got {list(values.shape)}")
    values = values.detach().to("cpu", torch.float64)
    if not values.isfinite().all():
        raise InputError("expected finite values, got an infinite one or NaN")
    return values


@_public
def identity(images: Tensor) -> Tensor:
    """Leave the image as it is."""
    return images.clone()


autocontrast = _public(tone.autocontrast)
equalize = _public(tone.equalize)
invert = _public(tone.invert)
solarize = _public(tone.solarize)
solarize_add = _public(tone.solarize_add)
posterize = _public(tone.posterize)
brightness = _public(tone.brightness)
contrast = _public(tone.contrast)
color = _public(enhance.color)
sharpness = _public(enhance.sharpness)
cutout = _public(enhance.cutout)
rotate = _public(geometry.rotate)
shear_x = _public(geometry.shear_x)
shear_y = _public(geometry.shear_y)
translate_x = _public(geometry.translate_x)
translate_y = _public(geometry.translate_y)
