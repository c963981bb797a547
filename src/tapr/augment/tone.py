"""Ops that change every level on its own, by arithmetic or by a table for each channel.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. Whole numbers stay in
8 or 16 bits: every pass over the pixels costs as much as their bytes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.levels import Values

Numbers = NDArray[np.int16]  # [B, 3], what an op does to levels, as `_numbers` has them


def _numbers(
    values: Values,
    added: Values | int = 0,  # to every level
    highest: Values | int = 255,  # of the levels that are not inverted then
    kept: Values | int = 255,  # of their bits
) -> Numbers:
    numbers = np.empty((len(values), 3), dtype=np.int16)
    numbers[:, 0], numbers[:, 1], numbers[:, 2] = added, highest, kept
    return numbers


# From one parameter per image to the numbers of an op.
NUMBERS: Mapping[str, Callable[[Values], Numbers]] = {
    "invert": lambda values: _numbers(values, highest=-1),
    "solarize": lambda values: _numbers(values, highest=np.ceil(values).clip(0, 256) - 1),
    "solarize_add": lambda values: _numbers(
        values, added=np.floor(values).clip(-256, 256), highest=127
    ),
    "posterize": lambda values: _numbers(values, kept=256 - 2 ** (8 - np.floor(values).clip(1, 8))),
}


class Tones(NamedTuple):
    """The numbers of ops on levels: whichever they are, they run as one."""

    numbers: Numbers


def invert(images: Tensor) -> Tensor:
    """Turn every level v into 255 - v."""
    return _toned("invert", images, np.zeros(len(images)))


def solarize(images: Tensor, threshold: Values) -> Tensor:
    """Invert the levels at or above `threshold`."""
    return _toned("solarize", images, threshold)


def solarize_add(images: Tensor, addition: Values) -> Tensor:
    """Add `addition` to every level, then invert those at or above 128."""
    return _toned("solarize_add", images, addition)


def posterize(images: Tensor, bits: Values) -> Tensor:
    """Keep the `bits` highest bits of every level: 1 to 8; below 1 counts as 1, above 8 as 8."""
    return _toned("posterize", images, bits)


def _toned(name: str, images: Tensor, values: Values) -> Tensor:
    return toned(images, Tones(NUMBERS[name](values)))


def toned(images: Tensor, tones: Tones) -> Tensor:
    """Add, invert and keep bits by the numbers of each image; int16."""
    numbers = torch.from_numpy(tones.numbers).to(images.device)
    added, highest, kept = numbers.view(-1, 3, 1, 1, 1).unbind(1)
    levels = images.short()
    if tones.numbers[:, 0].any():
        levels.add_(added).clamp_(0, 255)
    # Where `highest` is less than a level, a shift sets every bit.
    return (highest - levels).bitwise_right_shift_(15).bitwise_xor_(levels).bitwise_and_(kept)


def autocontrast(images: Tensor) -> Tensor:
    """Stretch each channel so that its darkest level becomes 0 and its lightest 255."""
    return looked_up(images, 0)


def equalize(images: Tensor) -> Tensor:
    """Give each channel a flat histogram, as nearly as its levels allow."""
    return looked_up(images, len(images))


def looked_up(images: Tensor, flat: int) -> Tensor:
    """The first `flat` images equalized, the others with autocontrast, by tables in one go."""
    count, size = images.shape[:2].numel(), images.shape[2:].numel()
    flat *= images.shape[1]
    pixels = images.view(count, size)  # a row for each channel
    first = torch.from_numpy(np.arange(0, 256 * count, 256, dtype=np.int32)).to(images.device)
    places = pixels.int().add_(first.view(-1, 1)).view(-1)  # in the tables behind one another
    low, high = (bound(pixels, 1).cpu().numpy() for bound in (torch.amin, torch.amax))
    # In numpy, whose calls are quicker: tables are small.
    tables = np.empty((count, 256), dtype=np.uint8)
    if flat:
        counts = torch.bincount(places[: flat * size], minlength=256 * flat)
        tables[:flat] = _flattening(counts.cpu().numpy().reshape(-1, 256), high[:flat])
    if flat < count:
        tables[flat:] = _stretching(low[flat:], high[flat:])
    table = torch.from_numpy(tables).to(images.device).view(-1)
    return table.index_select(0, places).view(images.shape)


def _flattening(counts: NDArray[np.int64], brightest: NDArray[np.uint8]) -> Values:
    upto = counts.cumsum(1)
    step = (upto[:, -1] - counts[np.arange(len(counts)), brightest]) // 255
    below = upto - counts
    below += step[:, None] // 2
    table: Values = below / np.maximum(step, 1)[:, None]
    table[step == 0] = np.arange(256)  # channels that stay as they are
    return np.minimum(table, 255, out=table)


def _stretching(low: NDArray[np.uint8], high: NDArray[np.uint8]) -> Values:
    flat = low == high
    low[flat], high[flat] = 0, 255
    scale = 255.0 / (high - low)
    table: Values = scale[:, None] * np.arange(256)
    table -= (low * scale)[:, None]
    return table.clip(0, 255, out=table)
