"""Ops that change every level on its own, by arithmetic or by a table for each channel.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. Whole numbers stay in
8 or 16 bits: every pass over the pixels costs as much as their bytes.
"""

import numpy as np
import torch
from torch import Tensor

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


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255."""
    return looked_up(images, 0)


def equalize(images: Tensor) -> Tensor:
    """Give each channel a flat histogram, as nearly as its levels allow."""
    return looked_up(images, len(images))


def looked_up(images: Tensor, flat: int) -> Tensor:
    """The first `flat` images equalized, the others with autocontrast, by tables in one go."""
    pixels = images.flatten(0, 1).flatten(1)  # [R, P], a row for each channel
    flat *= images.shape[1]
    first = torch.arange(0, 256 * len(pixels), 256, dtype=torch.int32, device=images.device)
    places = pixels.int().add_(first.unsqueeze(1))  # in the tables behind one another
    tables = torch.empty(len(pixels), 256, dtype=torch.uint8, device=images.device)
    if flat:
        tables[:flat] = _flattening(pixels[:flat], places[:flat])
    if flat < len(pixels):
        tables[flat:] = _stretching(pixels[flat:])
    return tables.flatten().index_select(0, places.flatten()).view(images.shape)


def _flattening(pixels: Tensor, places: Tensor) -> Tensor:
    counts = torch.bincount(places.flatten(), minlength=256 * len(pixels)).view(-1, 256)
    brightest = pixels.amax(1, keepdim=True).long()
    step = (pixels.shape[1] - counts.gather(1, brightest)) // 255
    histogram = counts.float()  # which takes whole numbers up to 2^24 pixels without an error
    below = histogram.cumsum(1).sub_(histogram).add_(step // 2)
    same = step == 0  # channels that stay as they are
    below.div_(step.float().masked_fill_(same, torch.inf))
    below.addcmul_(same.float(), torch.arange(256.0, device=pixels.device))
    return below.clamp_(max=255).short()


def _stretching(pixels: Tensor) -> Tensor:
    low, high = (bound(pixels, 1, keepdim=True).cpu().numpy() for bound in (torch.amin, torch.amax))
    flat = low == high
    low[flat], high[flat] = 0, 255
    scale = 255.0 / (high - low)  # in float64, which not every device has
    table = np.arange(256) * scale - low * scale
    return torch.from_numpy(table).clamp_(0, 255).short().to(pixels.device)


def _inverted_above(most: Tensor | int, levels: Tensor) -> Tensor:
    """Invert the levels, int16, above `most`: where that is less, a shift sets every bit."""
    return (most - levels).bitwise_right_shift_(15).bitwise_xor_(levels).byte()
