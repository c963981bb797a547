"""Ops that blend an image with a plainer version of itself, and the box that hides a part of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. The arithmetic is
PIL's: float32 in the same order, truncated.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.levels import Values, pixelwise

_BOX = (125, 123, 114)  # the colour of the released code's cutout
_BOX_GREY = 123  # the same in grey


def color(images: Tensor, factor: Values) -> Tensor:
    """Blend with the grey image: 0 is grey, 1 the image, above 1 more colourful."""
    if images.shape[1] == 1:
        return images.clone()
    return blend(grey(images), images, pixelwise(images, factor)).short().byte()


def sharpness(images: Tensor, factor: Values) -> Tensor:
    """Blend with the smoothed image: 0 is smooth, 1 the image, above 1 sharper."""
    return blend(_smooth(images), images, pixelwise(images, factor)).short().byte()


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


def blend(plain: Tensor, full: Tensor, factor: Tensor) -> Tensor:
    """`plain` + `factor` (`full` - `plain`) in 0..255; `plain` and `factor` are float32."""
    return (full - plain).mul_(factor).add_(plain).clamp_(0, 255)


def grey(images: Tensor) -> Tensor:
    """The luma of RGB images as whole levels in float32, [B, 1, H, W]."""
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = images.float().unsqueeze(1).unbind(2)
    # 16-bit fixed point weights; every sum stays below 2^24 and so exact in float32.
    weighted: Tensor = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).mul_(2.0**-16).floor_()


def _smooth(images: Tensor) -> Tensor:
    """The 3 x 3 mean with five times the weight in the middle; the border is left as it is."""
    smooth = images.float()
    if min(images.shape[2:]) < 3:
        return smooth
    narrow = images.short()  # the sums are whole, and half as wide as in float32
    rows = (narrow[:, :, :-2] + narrow[:, :, 1:-1]).add_(narrow[:, :, 2:])
    total = (rows[..., :-2] + rows[..., 1:-1]).add_(rows[..., 2:])
    total.add_(narrow[:, :, 1:-1, 1:-1], alpha=4)
    smooth[:, :, 1:-1, 1:-1] = total.float().add_(6.5).mul_(1 / 13).floor_()
    return smooth
