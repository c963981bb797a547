"""Digital: contrast, saturation, stretching, coarse pixels and JPEG."""

from io import BytesIO

import numpy as np
from PIL import Image

from tapr.corruptions import resampling
from tapr.corruptions.common import Bytes, Draws, Level, brightest, to_bytes, to_unit

RED_BELOW = np.array([0, 1, 1], np.float32)  # how far the channels of pure red are under its value


def contrast(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Pull every channel towards its mean over the image."""
    factor = level.of((0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05))
    values = to_unit(images)
    means = values.mean(axis=(1, 2), keepdims=True)
    return to_bytes((values - means) * np.float32(factor) + means)


def saturate(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Scale and shift the saturation of HSV; grey pixels count as red, as everywhere in HSV."""
    factor, shift = level.of(
        ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)),
        ((0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)),
    )
    values = to_unit(images)
    top = brightest(values)
    below = top - values
    spread = brightest(below)
    saturation = np.divide(spread, top, out=np.zeros_like(top), where=top > 0)
    wanted = np.clip(saturation * np.float32(factor) + np.float32(shift), 0, 1) * top
    direction = np.divide(
        below, spread, out=np.broadcast_to(RED_BELOW, below.shape).copy(), where=spread > 0
    )
    return to_bytes(top - direction * wanted)


def elastic_transform(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Move three points, stretch the image with them, then ripple it."""
    alpha, sigma, shift = level.of(
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    )
    height, width = images.shape[1:3]
    unit = min(height, width) * (244 / 224 if level.large else 1)
    moved = resampling.affine(to_unit(images), draws.uniform(-shift * unit, shift * unit, 3, 2))
    ripple = draws.uniform(-1, 1, 2, height, width)
    if sigma:
        rows, columns = (
            resampling.gaussian(size, sigma * unit, "reflect", 3) for size in (height, width)
        )
        ripple = resampling.separable(ripple, rows, columns)
    return to_bytes(resampling.displaced(moved, ripple * np.float32(alpha * unit)))


def pixelate(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Average to fewer pixels and spread them out again."""
    scale = level.of((0.95, 0.9, 0.85, 0.75, 0.65), (0.6, 0.5, 0.4, 0.3, 0.25))
    size = (images.shape[2], images.shape[1])
    fewer = (int(size[0] * scale), int(size[1] * scale))
    coarse = np.empty_like(images)
    for image, target in zip(images, coarse, strict=True):
        small = Image.fromarray(image).resize(fewer, Image.Resampling.BOX)
        target[...] = small.resize(size, Image.Resampling.BOX)
    return coarse


def jpeg_compression(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Through Pillow's JPEG and back."""
    quality = level.of((80, 65, 58, 50, 40), (25, 18, 15, 10, 7))
    compressed = np.empty_like(images)
    for image, target in zip(images, compressed, strict=True):
        file = BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=quality)
        target[...] = Image.open(file)
    return compressed
