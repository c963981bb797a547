"""Pixels as weighted sums of other pixels: filters, motion along a line, stretching.

- Filters and zooms are small matrices applied along rows and columns, the same for any batch.
- Motion is blurred as ImageMagick does it: a one-sided Gaussian along whole-pixel steps.
- Stretched images are sampled bilinearly, at places of its own for every image.
"""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from tapr.corruptions.common import Bytes, Floats

Edge = Literal["nearest", "reflect"]  # scipy's words
Planes = NDArray[np.float32]  # [N, C, H, W]
HALF_A_16_BIT_STEP = np.float32(0.5 / 257)


def separable(planes: Planes, rows: Planes, columns: Planes) -> Planes:
    """Apply `rows` [H', H] down every column and `columns` [W', W] along every row."""
    return rows @ (planes @ columns.T)


@lru_cache(maxsize=64)
def gaussian(size: int, sigma: float, mode: Edge = "nearest", truncate: float = 4.0) -> Planes:
    """The matrix [size, size] of a Gaussian filter."""
    identity = np.eye(size)
    return _frozen(ndimage.gaussian_filter1d(identity, sigma, 0, mode=mode, truncate=truncate))


@lru_cache(maxsize=256)
def centre_zoom(size: int, factor: float) -> Planes:
    """The matrix [size, size] that enlarges the middle of a line, bilinear, corners aligned."""
    cropped = int(np.ceil(size / factor))
    top = (size - cropped) // 2
    identity = np.eye(size)[top : top + cropped]
    enlarged = ndimage.zoom(identity, (factor, 1), order=1)
    trim = (len(enlarged) - size) // 2
    return _frozen(enlarged[trim : trim + size])


def motion(images: Bytes, radius: int, sigma: float, angles: Floats) -> Bytes:
    """Blur each image [N, H, W, C] along its own angle, in degrees; edge pixels are repeated."""
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


def affine(images: Floats, shifts: Floats) -> Floats:
    """Stretch each image [N, H, W, 3] so that three anchors around its centre move by `shifts`.

    `shifts` [N, 3, 2] are (x, y) in pixels; edges are reflected without repeating the last pixel.
    """
    height, width = images.shape[1:3]
    centre = np.array([width // 2, height // 2], np.float64)
    reach = min(height, width) // 3
    anchors = centre + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = np.concatenate([anchors + shifts, np.ones((len(shifts), 3, 1))], axis=2)
    back = np.linalg.solve(moved, np.broadcast_to(anchors, shifts.shape))  # [N, 3, 2]
    across, down = np.arange(width), np.arange(height)[:, None]
    x, y = (
        back[:, 0, axis, None, None] * across
        + back[:, 1, axis, None, None] * down
        + back[:, 2, axis, None, None]
        for axis in (0, 1)
    )
    return _sample(images, y.astype(np.float32), x.astype(np.float32), "reflect")


def displaced(images: Floats, offsets: Floats) -> Floats:
    """Take each pixel from (y, x) + `offsets` [N, 2, H, W]; edges reflected, the last repeated."""
    height, width = images.shape[1:3]
    y = offsets[:, 0] + np.arange(height, dtype=np.float32)[:, None]
    x = offsets[:, 1] + np.arange(width, dtype=np.float32)[None]
    return _sample(images, y, x, "symmetric")


def _frozen(matrix: NDArray[np.float64]) -> Planes:
    frozen = np.ascontiguousarray(matrix, np.float32)
    frozen.flags.writeable = False
    return frozen


def _packed(images: Bytes, margin: int) -> tuple[NDArray[np.uint32], int]:
    """The pixels, edges continued by `margin`, as one word each; and how many a row has."""
    sides = ((0, 0), (margin, margin), (margin, margin))
    padded = np.pad(images, (*sides, (0, 0)), mode="edge")
    words = np.zeros((*padded.shape[:3], 4), np.uint8)
    words[..., : padded.shape[3]] = padded
    return words.view(np.uint32).ravel(), padded.shape[2]


def _sample(images: Floats, y: Floats, x: Floats, edge: Literal["reflect", "symmetric"]) -> Floats:
    """Bilinear values of images [N, H, W, 3] at (y, x), each [N, H, W]; `edge` is numpy's word."""
    if not len(images):
        return images
    top, left = np.floor(y), np.floor(x)
    sides = [_margin(top, images.shape[1]), _margin(left, images.shape[2])]
    padded = np.pad(images, [(0, 0), *sides, (0, 0)], mode=edge)
    count, rows, stride, channels = padded.shape
    pixels = padded.reshape(-1, channels)
    start = (np.arange(count) * rows + sides[0][0]) * stride + sides[1][0]
    first = top.astype(np.int64) * stride + left.astype(np.int64) + start[:, None, None]

    down, right = (y - top)[..., None], (x - left)[..., None]
    upper, lower = (
        pixels.take(first + skip, axis=0) * (1 - right)
        + pixels.take(first + skip + 1, axis=0) * right
        for skip in (0, stride)
    )
    blended: Floats = upper * (1 - down) + lower * down
    return blended


def _margin(corner: Floats, size: int) -> tuple[int, int]:
    """How many pixels before and after a line of `size` the cells at these corners need."""
    return max(0, -int(corner.min())), max(0, int(corner.max()) + 2 - size)
