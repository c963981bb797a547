"""Blurs: each pixel is mixed with its neighbours."""

import cv2
import numpy as np
from numpy.typing import NDArray

from tapr.corruptions import resampling
from tapr.corruptions.common import Bytes, Draws, Floats, Level, to_bytes, to_unit


def gaussian_blur(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Blur by a Gaussian."""
    sigma = level.of((0.4, 0.6, 0.7, 0.8, 1.0), (1.0, 2.0, 3.0, 4.0, 6.0))
    return to_bytes(_gaussian(to_unit(images), sigma))


def defocus_blur(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Blur by a disk, as a lens out of focus does."""
    radius, alias = level.of(
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1)),
        ((3.0, 0.1), (4.0, 0.5), (6.0, 0.5), (8.0, 0.5), (10.0, 0.5)),
    )
    kernel = _disk(radius, alias)
    values = images / 255
    blurred = np.empty_like(values)
    for image, target in zip(values, blurred, strict=True):
        cv2.filter2D(image, -1, kernel, dst=target, borderType=cv2.BORDER_REFLECT_101)
    return to_bytes(blurred)


def glass_blur(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Blur, let every pixel take the place of a near one, blur again."""
    sigma, reach, rounds = level.of(
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1.0, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    )
    shuffled = to_bytes(_gaussian(to_unit(images), sigma))
    for _ in range(rounds):
        shuffled = _shuffle(shuffled, reach, draws)
    return to_bytes(_gaussian(to_unit(shuffled), sigma))


def motion_blur(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Blur along a line, at an angle of its own for every image."""
    radius, sigma = level.of(
        ((6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)),
        ((10, 3.0), (15, 5.0), (15, 8.0), (15, 12.0), (20, 15.0)),
    )
    return resampling.motion(images, radius, sigma, draws.uniform(-45, 45))


def zoom_blur(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Average the image with enlargements of its middle."""
    end, step = level.of(
        ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    )
    # How this very call rounds decides the number and the sizes of the zooms in the published set.
    factors = np.arange(1, end, step).tolist()
    planes = to_unit(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
    total = planes.copy()
    for factor in factors:
        rows, columns = (resampling.centre_zoom(size, factor) for size in planes.shape[2:])
        total += resampling.separable(planes, rows, columns)
    return to_bytes((total / (len(factors) + 1)).transpose(0, 2, 3, 1))


def _gaussian(images: Floats, sigma: float) -> Floats:
    rows, columns = (resampling.gaussian(size, sigma) for size in images.shape[1:3])
    blurred = resampling.separable(
        np.ascontiguousarray(images.transpose(0, 3, 1, 2)), rows, columns
    )
    return blurred.transpose(0, 2, 3, 1)


def _disk(radius: float, alias: float) -> Floats:
    reach, soft = (8, 3) if radius <= 8 else (int(radius), 5)
    line = np.arange(-reach, reach + 1) ** 2
    disk = (line[:, None] + line <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (soft, soft), alias)
    # Empty borders only cost time.
    used = np.flatnonzero(kernel.any(axis=0))
    return np.ascontiguousarray(kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1])


def _shuffle(images: Bytes, reach: int, draws: Draws) -> Bytes:
    """One round: from the last pixel back, copy into each the pixel at a drawn offset."""
    count, height, width, channels = images.shape
    inner = (slice(None), slice(reach + 1, height - reach + 1), slice(reach + 1, width - reach + 1))
    place = np.arange(count * height * width).reshape(count, height, width)
    down, right = draws.integers(-reach, reach, 2, height, width).swapaxes(0, 1)
    source = place.copy()
    source[inner] += (down.astype(np.int64) * width + right)[inner]
    pixels = images.reshape(-1, channels)
    return pixels.take(_follow(source.ravel()), axis=0).reshape(images.shape)


def _follow(source: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each pixel's value comes from, when copies from behind were themselves copied before.

    A pixel behind (of a higher number) has its new value already, so its own source counts; the
    chain ends at a pixel that copies from before it. Halving all chains at once takes few rounds.
    """
    hop = np.maximum(source, np.arange(len(source)))
    while not np.array_equal(further := hop[hop], hop):
        hop = further
    return source[hop]
