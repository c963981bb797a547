"""The 256 levels of a pixel: what images are taken, and how float images become levels and back.

PIL's operations are defined on 8-bit levels, so everything between is computed on them: a float
image is rounded to the nearest level first, and its result is a multiple of 1/255.
"""

import torch
from torch import Tensor

from tapr.errors import InputError

_CHUNK = 1 << 20  # elements converted at once: temporaries stay in the cache


def check(images: Tensor) -> None:
    """Refuse what is not a batch of uint8 images, or of float images in [0, 1]."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or 0 in images.shape[2:]:
        raise InputError(
            f"expected images [B, C, H, W] with 1 or 3 channels, got {list(images.shape)}"
        )
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


def to_levels(images: Tensor) -> Tensor:
    """Images as uint8 levels; uint8 images are passed through, not copied."""
    if images.dtype == torch.uint8:
        return images
    levels = torch.empty(images.shape, dtype=torch.uint8, device=images.device)
    size = max(1, _CHUNK * len(images) // max(1, images.numel()))
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        levels[part] = images[part].mul(255).add_(0.5)
    return levels


def from_levels(levels: Tensor, dtype: torch.dtype) -> Tensor:
    """Levels as images of `dtype`: uint8, or float in [0, 1]."""
    return levels if dtype == torch.uint8 else levels.to(dtype).div_(255)
