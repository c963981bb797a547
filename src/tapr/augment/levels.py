"""The 256 levels of a pixel: what images are taken, and how float images become levels and back.

PIL's operations are defined on 8-bit levels, so everything between is computed on them: a float
image is rounded to the nearest level first, and its result is a multiple of 1/255.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.errors import InputError

Values = NDArray[np.float64]  # ops' parameters, one per image: few, and on the CPU
_LARGEST = 4096  # pixels; within reach of PIL's 16.16 fixed point, however an image is sheared
_CHUNK = 1 << 23  # bytes worked on at once: fresh memory is dearer than the work itself
WIDE = 32  # bytes that the temporaries of a level amount to, about, where each step is a pass


def check(images: Tensor) -> None:
    """Refuse what is not a batch of uint8 images, or of float images in [0, 1]."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError(
            f"expected images [B, C, H, W] with 1 or 3 channels, got {list(images.shape)}"
        )
    if not all(0 < side <= _LARGEST for side in images.shape[2:]):
        raise InputError(f"expected sides of 1 to {_LARGEST} pixels, got {list(images.shape[2:])}")
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise InputError(f"expected uint8 or float images, got {images.dtype}")
    if not images.numel():
        return
    low, high = (bound.item() for bound in torch.aminmax(images))
    if not (low >= 0 and high <= 1):
        end, bound = ("minimum", low) if not low >= 0 else ("maximum", high)
        raise InputError(f"expected images in [0, 1], got {end} {bound:g}")


def chunks(images: Tensor, wide: int = 1) -> Iterator[slice]:
    """Slices of the batch of so few levels that temporaries of `wide` bytes each stay small."""
    return pieces(0, len(images), fitting(images, wide))


def fitting(images: Tensor, wide: int) -> int:
    """How many images have so few levels."""
    return max(1, _CHUNK // (wide * images.shape[1:].numel()))


def pieces(start: int, end: int, most: int) -> Iterator[slice]:
    """Equal slices from `start` to `end`, as few as there can be of at most `most`."""
    count = end - start
    size = -(-count // -(-count // most)) if count else 1
    return (slice(first, min(first + size, end)) for first in range(start, end, size))


def to_levels(images: Tensor) -> Tensor:
    """Images as contiguous uint8 levels; where they are that already, not copied."""
    if images.dtype == torch.uint8:
        return images.contiguous()
    half = torch.tensor(0.5, dtype=images.dtype, device=images.device)
    levels = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    for part in chunks(images, WIDE):
        # By way of int16, which torch converts to and from with vector instructions.
        levels[part] = torch.add(half, images[part], alpha=255).short()
    return levels


def from_levels(levels: Tensor, dtype: torch.dtype) -> Tensor:
    """Levels, uint8 or int16, as images of `dtype`: uint8, or float in [0, 1]."""
    return levels.to(dtype) if dtype == torch.uint8 else levels.to(dtype).div_(255)


def write(levels: Tensor, images: Tensor) -> None:
    """Write levels into images of any type, without a temporary copy."""
    for part in chunks(images, WIDE):
        images[part] = levels[part]
        if images.dtype != torch.uint8:
            images[part].div_(255)


def pixelwise(images: Tensor, values: Values, kind: type[np.number[Any]] = np.float32) -> Tensor:
    """Put parameters beside the pixels of their images: [B, 1, 1, 1], on their device."""
    return torch.from_numpy(values.astype(kind)).to(images.device).view(-1, 1, 1, 1)
