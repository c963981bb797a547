"""Ops that blend an image with a plainer version of itself, and the box that hides a part of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. The arithmetic is
PIL's: float32 in the same order, truncated.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.levels import Values, pixelwise

_BOX = (125, 123, 114)  # the colour of the released code's cutout
_BOX_GREY = 123  # the same in grey


def color(images: Tensor, factor: Values) -> Tensor:
    """Blend with the grey image: 0 is grey, 1 the image, above 1 more colourful."""
    return _enhanced(images, factor, "color")


def contrast(images: Tensor, factor: Values) -> Tensor:
    """Blend with the image's mean grey: 0 is that grey, 1 the image, above 1 more contrast."""
    return _enhanced(images, factor, "contrast")


def brightness(images: Tensor, factor: Values) -> Tensor:
    """Blend with black: 0 is black, 1 the image, above 1 brighter."""
    return _enhanced(images, factor, "brightness")


def sharpness(images: Tensor, factor: Values) -> Tensor:
    """Blend with the smoothed image: 0 is smooth, 1 the image, above 1 sharper."""
    return _enhanced(images, factor, "sharpness")


def _enhanced(images: Tensor, factor: Values, name: str) -> Tensor:
    return enhanced(images, factor, {name: slice(None)})


def enhanced(images: Tensor, factor: Values, parts: Mapping[str, slice]) -> Tensor:
    """Blend each part of a batch with a plainer version of itself, the four ops in one go; int16.

    A small batch costs as much as it has calls, so that the parts share what they can.
    """
    levels, factors = images.float(), pixelwise(images, factor)
    for name, part in parts.items():
        BLENDS[name](levels[part], factors[part])
    return levels.clamp_(0, 255).short()


def _color(levels: Tensor, factor: Tensor) -> None:
    if levels.shape[1] > 1:
        _blend(grey(levels), levels, factor)


def _contrast(levels: Tensor, factor: Tensor) -> None:
    # Sums of rows are exact in float32, those of images need not be.
    total, pixels = grey(levels).sum(3).sum((1, 2), dtype=torch.long), levels.shape[2:].numel()
    mean = ((2 * total + pixels) // (2 * pixels)).float()  # rounded, a half upwards
    _blend(mean.view(-1, 1, 1, 1), levels, factor)


def _sharpness(levels: Tensor, factor: Tensor) -> None:
    """The smooth image is the 3 x 3 mean with five times the weight in the middle."""
    if min(levels.shape[2:]) < 3:
        return  # nothing but border, which is left as it is
    rows = (levels[:, :, :-2] + levels[:, :, 1:-1]).add_(levels[:, :, 2:])
    smooth = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    inner = levels[:, :, 1:-1, 1:-1]
    smooth.add_(inner, alpha=4).add_(6.5).mul_(1 / 13).floor_()
    _blend(smooth, inner, factor)


def _blend(plain: Tensor, full: Tensor, factor: Tensor) -> None:
    """Turn `full` into `plain` + `factor` (`full` - `plain`)."""
    full.sub_(plain).mul_(factor).add_(plain)


BLENDS: Mapping[str, Callable[[Tensor, Tensor], object]] = {
    "brightness": Tensor.mul_,
    "contrast": _contrast,
    "color": _color,
    "sharpness": _sharpness,
}


def grey(levels: Tensor) -> Tensor:
    """The luma of RGB levels as whole levels, [B, 1, H, W], both in float32."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels.unsqueeze(1).unbind(2)
    # 16-bit fixed point weights; every sum stays below 2^24 and so exact in float32.
    weighted: Tensor = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).mul_(2.0**-16).floor_()


def cutout(images: Tensor, side: Values, centre: Values) -> Tensor:
    """Hide a square of `side` pixels around `centre` [B, 2], x and y in [0, 1], with grey."""
    height, width = images.shape[2:]
    columns = _covered(side, centre[:, 0], width)[:, None, :]
    rows = _covered(side, centre[:, 1], height)[:, :, None]
    hidden = torch.from_numpy(rows & columns).to(images.device).unsqueeze(1)
    paint = torch.tensor(_BOX if images.shape[1] == 3 else (_BOX_GREY,), dtype=torch.uint8)
    return torch.where(hidden, paint.to(images.device).view(1, -1, 1, 1), images)


def _covered(side: Values, centre: Values, size: int) -> NDArray[np.bool_]:
    """Which of `size` places the square covers, [B, size]; the released code drew both ends."""
    first = np.floor((centre * size - side / 2).clip(min=0))
    last = np.floor((first + side).clip(max=size))
    places = np.arange(size)
    covered: NDArray[np.bool_] = (places >= first[:, None]) & (places <= last[:, None])
    return covered
