"""Bilinear sampling of a batch at places of its own for every image."""

from typing import Literal

import numpy as np

from tapr.corruptions.common import Floats


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
