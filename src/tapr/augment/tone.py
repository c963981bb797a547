"""Ops that change every level on its own, by arithmetic or by a table for each channel.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. Whole numbers stay in
8 or 16 bits: every pass over the pixels costs as much as their bytes.
"""

import numpy as np
import torch
from torch import Tensor

from tapr.augment.enhance import blend, grey
from tapr.augment.levels import Values, pixelwise


def invert(images: Tensor) -> Tensor:
    """Turn every level v into 255 - v."""
    return images.bitwise_not()


def solarize(images: Tensor, threshold: Values) -> Tensor:
    """Invert the levels at or above `threshold`."""
    below = np.ceil(threshold).clip(0, 256) - 1
    return _inverted_above(pixelwise(images, below, np.int16), images.short())


def solarize_add(images: Tensor, addition: Values) -> Tensor:
    """Add `addition` to every level, then invert those at or above 128."""
    more = pixelwise(images, np.floor(addition).clip(-256, 256), np.int16)
    return _inverted_above(127, images.short().add_(more).clamp_(0, 255))


def posterize(images: Tensor, bits: Values) -> Tensor:
    """Keep the `bits` highest bits of every level: 1 to 8; below 1 counts as 1, above 8 as 8."""
    kept = 256 - 2 ** (8 - np.floor(bits).clip(1, 8))
    return images.bitwise_and(pixelwise(images, kept, np.uint8))


def brightness(images: Tensor, factor: Values) -> Tensor:
    """Blend with black: 0 is black, 1 the image, above 1 brighter."""
    brighter = images.float().mul_(pixelwise(images, factor))
    return brighter.clamp_(0, 255).short().byte()


def contrast(images: Tensor, factor: Values) -> Tensor:
    """Blend with the image's mean grey: 0 is that grey, 1 the image, above 1 more contrast."""
    total, pixels = grey(images).sum((1, 2, 3), dtype=torch.long), images.shape[2:].numel()
    mean = ((2 * total + pixels) // (2 * pixels)).float()  # rounded, a half upwards
    factors = pixelwise(images, factor)
    return blend(mean.view(-1, 1, 1, 1), images, factors).short().byte()


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
    pixels = images.flatten(0, 1).flatten(1)
    places = _places(pixels)
    histogram = torch.bincount(places, minlength=256 * len(pixels)).view(-1, 256).int()
    brightest = pixels.amax(1, keepdim=True).long()
    step = (pixels.shape[1] - histogram.gather(1, brightest)) // 255
    below = (histogram.cumsum(1, dtype=torch.int32) - histogram).add_(step // 2)
    table = (below // step.clamp(min=1)).clamp_(0, 255).byte()
    levels = torch.arange(256, dtype=torch.uint8, device=images.device)
    tables = torch.where(step > 0, table, levels)
    return tables.flatten().index_select(0, places).view(images.shape)


def _look_up(images: Tensor, table: Tensor) -> Tensor:
    """Each pixel's entry in the table of its channel, [B, C, 256]."""
    places = _places(images.flatten(0, 1).flatten(1))
    return table.flatten().index_select(0, places).view(images.shape)


def _places(pixels: Tensor) -> Tensor:
    """Where each of the levels [R, P] stands in R tables behind one another; int32 is quicker."""
    first = torch.arange(0, 256 * len(pixels), 256, dtype=torch.int32, device=pixels.device)
    return pixels.int().add_(first.unsqueeze(1)).flatten()


def _inverted_above(most: Tensor | int, levels: Tensor) -> Tensor:
    """Invert the levels, int16, above `most`: where that is less, a shift sets every bit."""
    return (most - levels).bitwise_right_shift_(15).bitwise_xor_(levels).byte()
