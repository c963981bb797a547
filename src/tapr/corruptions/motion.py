"""Motion blur as ImageMagick computes it: a one-sided Gaussian along whole-pixel steps."""

import numpy as np
from numpy.typing import NDArray

from tapr.corruptions.common import Bytes, Floats

HALF_A_16_BIT_STEP = np.float32(0.5 / 257)


def motion(images: Bytes, radius: int, sigma: float, angles: Floats) -> Bytes:
    """Blur each image [N, H, W, C] along its own angle, in degrees; edge pixels go on forever."""
    count, height, width, channels = images.shape
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    radians = np.deg2rad(angles.astype(np.float64))[:, None]
    right = np.ceil(steps * np.cos(radians) - 0.5).astype(np.int64)  # [N, steps]
    down = np.ceil(steps * np.sin(radians) - 0.5).astype(np.int64)

    margin = int(max(abs(right).max(initial=0), abs(down).max(initial=0)))
    pixels, stride = _packed(images, margin)
    first = np.arange(count)[:, None, None] * ((height + 2 * margin) * stride)
    first = first + (np.arange(height) + margin)[:, None] * stride + np.arange(width) + margin
    offsets = down * stride + right

    total = np.zeros((count, height, width, 4), np.float32)
    for step, weight in enumerate(weights.astype(np.float32)):
        taken = pixels.take(first + offsets[:, step, None, None], mode="clip")
        total += taken.view(np.uint8).reshape(total.shape) * weight
    # ImageMagick rounds to 16 bits, of which the upper 8 are kept.
    return (total[..., :channels] + HALF_A_16_BIT_STEP).astype(np.uint8)


def _packed(images: Bytes, margin: int) -> tuple[NDArray[np.uint32], int]:
    """The pixels, edges continued by `margin`, as one word each; and how many a row has."""
    sides = ((0, 0), (margin, margin), (margin, margin))
    padded = np.pad(images, (*sides, (0, 0)), mode="edge")
    words = np.zeros((*padded.shape[:3], 4), np.uint8)
    words[..., : padded.shape[3]] = padded
    return words.view(np.uint32).ravel(), padded.shape[2]
