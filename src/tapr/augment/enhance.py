"""Ops that blend an image with a plainer version of itself, and the box that hides a part of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. The arithmetic is
PIL's: float32 in the same order, truncated.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.levels import Values, pixelwise

_BOX = (125, 123, 114)  # the colour of the released code's cutout
_BOX_GREY = 123  # the same in grey
_RED, _GREEN, _BLUE = 19595 / 65536, 38470 / 65536, 7471 / 65536
NAMES = ("brightness", "contrast", "color", "sharpness")  # in the order in which they run


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
    return enhanced(images, factor, [len(images) * (name == each) for each in NAMES])


def enhanced(images: Tensor, factor: Values, counts: Sequence[int]) -> Tensor:
    """Blend images with plainer versions of themselves, as many by each of `NAMES`; int16.

    A small batch costs as much as it has calls, so that the ops share what they can.
    """
    dark, flat, grey_, soft = accumulate(counts)
    levels, factors = images.float(), pixelwise(images, factor)
    if dark:
        levels[:dark].mul_(factors[:dark])
    if dark < grey_:
        blended = levels[dark:grey_]
        _blend(_greys(blended, flat - dark), blended, factors[dark:grey_])
    if grey_ < soft:
        _sharpen(levels[grey_:], factors[grey_:])
    result = levels.clamp_(0, 255).short()
    if grey_ < soft:
        _edge(result[grey_:], images[grey_:])
    return result


def _greys(levels: Tensor, flat: int) -> Tensor:
    """The grey images, of which the first `flat` have their mean everywhere."""
    greys = grey(levels) if levels.shape[1] > 1 else levels.clone()
    if flat:
        pixels = levels.shape[2:].numel()
        # Sums of rows are exact in float32, those of images need not be.
        total = greys[:flat].sum(3).sum((1, 2), dtype=torch.long)
        greys[:flat] = total.add_(pixels // 2).floor_divide_(pixels).view(-1, 1, 1, 1)
    return greys


def _sharpen(levels: Tensor, factor: Tensor) -> None:
    """Blend with the rounded 3 x 3 means, which have five times the weight in the middle.

    Each pass runs over all images as one line of levels, which is quicker than row by row. At the
    edge of an image, where neighbours are of another row or image, the result means nothing.
    """
    smooth, width = torch.empty_like(levels), levels.shape[3]
    full, inner = levels.view(-1), smooth.view(-1)[width + 1 : -width - 1]
    rows = (full[: -2 * width] + full[width:-width]).add_(full[2 * width :])
    torch.add(rows[:-2], rows[1:-1], out=inner).add_(rows[2:])
    inner.add_(full[width + 1 : -width - 1], alpha=4).mul_(1 / 13).round_()
    _blend(smooth, levels, factor)


def _edge(result: Tensor, images: Tensor) -> None:
    """Take the outermost rows and columns from the images."""
    rows, columns = (max(1, side - 1) for side in images.shape[2:])
    result[:, :, ::rows] = images[:, :, ::rows]
    result[..., ::columns] = images[..., ::columns]


def _blend(plain: Tensor, full: Tensor, factor: Tensor) -> None:
    """Turn `full` into `plain` + `factor` (`full` - `plain`)."""
    full.sub_(plain).mul_(factor).add_(plain)


def grey(levels: Tensor) -> Tensor:
    """The luma of RGB levels as whole levels, [B, 1, H, W], both in float32."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels.unsqueeze(1).unbind(2)
    # 16-bit fixed point weights; every sum has less than 24 bits and so is exact in float32.
    weighted: Tensor = (red * _RED).add_(green, alpha=_GREEN).add_(blue, alpha=_BLUE)
    return weighted.add_(0.5).floor_()


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
