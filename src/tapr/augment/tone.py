"""Ops that look every level up in a table of 256: one table per image, or per channel of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image.
"""

import torch
from torch import Tensor

from tapr.augment.enhance import blend, grey


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255."""
    pixels = images.flatten(2)
    low, high = (bound.double().unsqueeze(-1) for bound in (pixels.amin(2), pixels.amax(2)))
    scale = 255 / (high - low)
    table = (_levels(images) * scale - low * scale).clamp_(0, 255)
    return _look_up(images, torch.where(high > low, table, _levels(images)))


def equalize(images: Tensor) -> Tensor:
    """Give each channel a flat histogram, as nearly as its levels allow."""
    count, channels = images.shape[:2]
    pixels = images.reshape(count * channels, -1).long()
    first = torch.arange(count * channels, device=images.device).unsqueeze(1) * 256
    histogram = torch.bincount((pixels + first).flatten(), minlength=count * channels * 256)
    histogram = histogram.view(count, channels, 256)
    brightest = images.flatten(2).amax(2, keepdim=True).long()
    step = (pixels.shape[1] - histogram.gather(2, brightest)) // 255
    below = histogram.cumsum(2) - histogram
    table = (step // 2 + below) // step.clamp(min=1)
    return _look_up(images, torch.where(step > 0, table.clamp_(0, 255), _levels(images).long()))


def invert(images: Tensor) -> Tensor:
    """Turn every level v into 255 - v."""
    return images.bitwise_not()


def solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels at or above `threshold`."""
    levels = _levels(images)
    return _look_up(images, torch.where(levels < _column(threshold, images), levels, 255 - levels))


def solarize_add(images: Tensor, addition: Tensor) -> Tensor:
    """Add `addition` to every level, then invert those at or above 128."""
    levels = (_levels(images) + _column(addition, images)).clamp_(0, 255).floor_()
    return _look_up(images, torch.where(levels < 128, levels, 255 - levels))


def posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep the `bits` highest bits of every level: 1 to 8, nearer values count as these."""
    step = 2 ** (8 - _column(bits, images).floor().clamp_(1, 8))
    return _look_up(images, (_levels(images) / step).floor_() * step)


def brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with black: 0 is black, 1 the image, above 1 brighter."""
    black = torch.zeros((), device=images.device)
    return _look_up(images, blend(black, _levels(images), _column(factor, images)))


def contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the image's mean grey: 0 is that grey, 1 the image, above 1 more contrast."""
    mean = grey(images).mean((1, 2, 3), dtype=torch.float64).add_(0.5).floor_()
    table = blend(_column(mean, images), _levels(images), _column(factor, images))
    return _look_up(images, table)


def _levels(images: Tensor) -> Tensor:
    return torch.arange(256, dtype=torch.float64, device=images.device)


def _column(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.device).view(-1, 1, 1)


def _look_up(images: Tensor, table: Tensor) -> Tensor:
    """Each pixel's entry in its image's table, [B, C, 256] or [B, 1, 256]."""
    pixels = images.flatten(2).long()
    return table.byte().expand(*images.shape[:2], 256).gather(2, pixels).view(images.shape)
