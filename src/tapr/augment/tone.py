"""Ops that look every level up in a table of 256: one table per image, or per channel of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image.
"""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.enhance import blend, grey
from tapr.augment.levels import Values, beside

Tables = NDArray[np.uint8]  # [B, 256]
_LEVELS = np.arange(256)
_SOLARIZED = np.where(np.arange(257)[:, None] > _LEVELS, _LEVELS, 255 - _LEVELS).astype(np.uint8)
_POSTERIZED = (_LEVELS & -(1 << np.arange(7, -1, -1)[:, None])).astype(np.uint8)


def _solarize_add(addition: Values) -> Tables:
    added = (_LEVELS + np.floor(addition)[:, None]).clip(0, 255)
    return np.where(added < 128, added, 255 - added).astype(np.uint8)


def _brightness(factor: Values) -> Tables:
    product = _LEVELS.astype(np.float32) * factor.astype(np.float32)[:, None]
    return product.clip(0, 255).astype(np.uint8)


# The ops whose tables depend on nothing but the parameter.
TABLES: Mapping[str, Callable[[Values], Tables]] = {
    "invert": lambda values: _SOLARIZED[np.zeros(len(values), int)],
    "solarize": lambda threshold: _SOLARIZED[np.ceil(threshold).clip(0, 256).astype(int)],
    "solarize_add": _solarize_add,
    "posterize": lambda bits: _POSTERIZED[np.floor(bits).clip(1, 8).astype(int) - 1],
    "brightness": _brightness,
}


def invert(images: Tensor) -> Tensor:
    """Turn every level v into 255 - v."""
    return images.bitwise_not()


def solarize(images: Tensor, threshold: Values) -> Tensor:
    """Invert the levels at or above `threshold`."""
    return look_up(images, TABLES["solarize"](threshold))


def solarize_add(images: Tensor, addition: Values) -> Tensor:
    """Add `addition` to every level, then invert those at or above 128."""
    return look_up(images, TABLES["solarize_add"](addition))


def posterize(images: Tensor, bits: Values) -> Tensor:
    """Keep the `bits` highest bits of every level: 1 to 8; below 1 counts as 1, above 8 as 8."""
    return look_up(images, TABLES["posterize"](bits))


def brightness(images: Tensor, factor: Values) -> Tensor:
    """Blend with black: 0 is black, 1 the image, above 1 brighter."""
    return look_up(images, TABLES["brightness"](factor))


def contrast(images: Tensor, factor: Values) -> Tensor:
    """Blend with the image's mean grey: 0 is that grey, 1 the image, above 1 more contrast."""
    total, pixels = grey(images).sum((1, 2, 3), dtype=torch.long), images.shape[2:].numel()
    mean = ((2 * total + pixels) // (2 * pixels)).float()  # rounded, a half upwards
    levels = torch.arange(256, dtype=torch.float32, device=images.device)
    table = blend(mean.unsqueeze(1), levels, beside(images, factor).unsqueeze(1))
    return _look_up(images, table.short().byte().unsqueeze(1))


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255."""
    pixels = images.flatten(2)
    low, high = pixels.amin(2, keepdim=True).cpu(), pixels.amax(2, keepdim=True).cpu()
    flat = high == low
    # In float64, which not every device has; not `255 / tensor`, which rounds twice.
    scale = torch.full(low.shape, 255.0, dtype=torch.float64)
    scale = scale.div_(high - low).masked_fill_(flat, 1)
    levels = torch.arange(256, dtype=torch.float64)
    table = (levels * scale).sub_(low.masked_fill_(flat, 0) * scale)
    return _look_up(images, table.clamp_(0, 255).short().byte().to(images.device))


def equalize(images: Tensor) -> Tensor:
    """Give each channel a flat histogram, as nearly as its levels allow."""
    count, channels = images.shape[:2]
    pixels = images.reshape(count * channels, -1).long()
    first = torch.arange(0, 256 * count * channels, 256, device=images.device).unsqueeze(1)
    histogram = torch.bincount((pixels + first).flatten(), minlength=256 * count * channels)
    histogram = histogram.view(-1, 256)
    brightest = pixels.amax(1, keepdim=True)
    step = (pixels.shape[1] - histogram.gather(1, brightest)) // 255
    below = (histogram.cumsum(1) - histogram).add_(step // 2)
    table = (below // step.clamp(min=1)).clamp_(0, 255).byte()
    levels = torch.arange(256, dtype=torch.uint8, device=images.device)
    return torch.where(step > 0, table, levels).gather(1, pixels).view(images.shape)


def look_up(images: Tensor, table: Tables) -> Tensor:
    """Each pixel's entry in its image's table."""
    return _look_up(images, torch.from_numpy(table).to(images.device).unsqueeze(1))


def _look_up(images: Tensor, table: Tensor) -> Tensor:
    table = table.expand(-1, images.shape[1], -1)  # [B, C, 256]
    return table.gather(2, images.flatten(2).long()).view(images.shape)
