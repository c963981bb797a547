"""Weather: snow, frost, fog, splashes and bright light."""

import cv2
import numpy as np

from tapr.corruptions import resampling
from tapr.corruptions.common import Bytes, Draws, Floats, Level, brightest, to_bytes, to_unit
from tapr.corruptions.photographs import photographs

TURQUOISE = np.array([175, 238, 238], np.float32) / 255
BROWN = np.array([63, 42, 20], np.float32) / 255
RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)
GREY = np.array([0.299, 0.587, 0.114], np.float32)  # how much each channel counts


def snow(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Whiten the image and let flakes drift over it, both ways."""
    mean, deviation, zoom, threshold, radius, sigma, keep = level.of(
        (
            (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
            (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
        ),
        (
            (0.1, 0.3, 3.0, 0.5, 10, 4.0, 0.8),
            (0.2, 0.3, 2.0, 0.5, 12, 4.0, 0.7),
            (0.55, 0.3, 4.0, 0.9, 12, 8.0, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8.0, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12.0, 0.55),
        ),
    )
    height, width = images.shape[1:3]
    flakes = mean + np.float32(deviation) * draws.normal(1, height, width)
    rows, columns = (resampling.centre_zoom(size, zoom) for size in (height, width))
    flakes = resampling.separable(flakes, rows, columns)
    layer = to_bytes(np.where(flakes < threshold, 0, flakes)).transpose(0, 2, 3, 1)
    layer = resampling.motion(layer, radius, sigma, draws.uniform(-135, -45))
    falling = to_unit(layer)
    values = to_unit(images)
    white = np.maximum(values, (values @ GREY)[..., None] * 1.5 + 0.5)
    return to_bytes(keep * values + (1 - keep) * white + falling + falling[:, ::-1, ::-1])


def frost(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Lay a piece of a photograph of frost over the image."""
    weight, ice = level.of(
        ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1.0, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    )
    height, width = images.shape[1:3]
    pictures = [_at_scale(picture, height, width, level) for picture in photographs()]
    lots = draws.uniform(0, 1, 3)
    pieces = np.empty_like(images)
    for (which, down, right), piece in zip(lots.tolist(), pieces, strict=True):
        picture = pictures[int(which * len(pictures))]
        top = int(down * (picture.shape[0] - height))
        left = int(right * (picture.shape[1] - width))
        piece[...] = picture[top : top + height, left : left + width]
    return to_bytes(to_unit(images) * np.float32(weight) + to_unit(pieces) * np.float32(ice))


def _at_scale(picture: Bytes, height: int, width: int, level: Level) -> Bytes:
    """A fifth of the photograph for small images, all of it for large ones, enough of it always."""
    scale = 1.0 if level.large else 0.2
    scale = max(scale, (height + 1) / picture.shape[0], (width + 1) / picture.shape[1])
    if scale == 1:
        return picture
    return cv2.resize(picture, None, fx=scale, fy=scale).astype(np.uint8)


def fog(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Add a cloud and bring the brightest value back to where it was."""
    amount, decay = level.of(
        ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75)),
        ((1.5, 2.0), (2.0, 2.0), (2.5, 1.7), (2.5, 1.5), (3.0, 1.4)),
    )
    height, width = images.shape[1:3]
    values = to_unit(images)
    top = values.max(axis=(1, 2, 3), keepdims=True)
    cloud = _plasma(max(height, width), decay, draws)[:, :height, :width, None]
    return to_bytes((values + cloud * np.float32(amount)) * (top / (top + np.float32(amount))))


def _plasma(size: int, decay: float, draws: Draws) -> Floats:
    """Plasma fractals in [0, 1] by diamond-square on a torus, at least `size` wide."""
    size = 1 << (size - 1).bit_length()
    lots = draws.uniform(-1, 1, size, size)
    cloud = np.zeros_like(lots)
    wobble, step = 100.0, size
    while step >= 2:
        half = step // 2
        # Each value is displaced by wobble times a draw from (-wobble, wobble).
        amplitude = np.float32(wobble * wobble)
        corners = cloud[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, 1)
        middles = (pairs + np.roll(pairs, -1, 2)) / 4
        middles += amplitude * lots[:, half::step, half::step]
        cloud[:, half::step, half::step] = middles
        for axis, place in ((1, np.s_[:, ::step, half::step]), (2, np.s_[:, half::step, ::step])):
            neighbours = middles + np.roll(middles, 1, axis)
            neighbours += corners + np.roll(corners, -1, 3 - axis)
            cloud[place] = neighbours / 4 + amplitude * lots[place]
        wobble, step = wobble / decay, half
    cloud -= cloud.min(axis=(1, 2), keepdims=True)
    cloud /= cloud.max(axis=(1, 2), keepdims=True)
    return cloud


def spatter(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Splash water (severities 1 to 3) or mud (4 and 5) on the lens."""
    mean, deviation, sigma, threshold, strength, kind = level.of(
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, _water),
            (0.65, 0.1, 0.8, 0.7, 0.5, _water),
            (0.65, 0.3, 1.0, 0.69, 0.5, _water),
            (0.65, 0.1, 0.7, 0.69, 0.6, _mud),
            (0.65, 0.1, 0.5, 0.68, 0.6, _mud),
        ),
        (
            (0.65, 0.3, 4.0, 0.69, 0.6, _water),
            (0.65, 0.3, 3.0, 0.68, 0.6, _water),
            (0.65, 0.3, 2.0, 0.68, 0.5, _water),
            (0.65, 0.3, 1.0, 0.65, 1.5, _mud),
            (0.67, 0.4, 1.0, 0.65, 1.5, _mud),
        ),
    )
    height, width = images.shape[1:3]
    liquid = mean + np.float32(deviation) * draws.normal(1, height, width)
    rows, columns = (resampling.gaussian(size, sigma) for size in (height, width))
    liquid = resampling.separable(liquid, rows, columns)[:, 0]
    liquid[liquid < threshold] = 0
    return kind(images, liquid, strength)


def _water(images: Bytes, liquid: Floats, strength: float) -> Bytes:
    """Lay pale turquoise where the layer [N, H, W] is wet, shaped by the distance to its edges."""
    shine = np.stack([_shine(layer) for layer in to_bytes(liquid)] or [liquid])
    peaks = shine.max(axis=(1, 2), keepdims=True)
    shine = np.divide(shine, peaks, out=np.zeros_like(shine), where=peaks > 0) * strength
    return to_bytes(to_unit(images) + shine[..., None] * TURQUOISE)


def _shine(layer: Bytes) -> Floats:
    edges = cv2.Canny(layer, 50, 150)
    distance = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, RELIEF)
    return layer.astype(np.float32) * cv2.blur(relief, (3, 3))


def _mud(images: Bytes, liquid: Floats, strength: float) -> Bytes:
    """Cover the image where the layer [N, H, W] is wet, with edges blurred by `strength`."""
    rows, columns = (resampling.gaussian(size, strength) for size in images.shape[1:3])
    wet = (liquid > 0).astype(np.float32)[:, None]
    cover = resampling.separable(wet, rows, columns)[:, 0, ..., None]
    cover = np.where(cover < 0.8, 0, cover)
    return to_bytes(to_unit(images) * (1 - cover) + BROWN * cover)


def brightness(images: Bytes, level: Level, draws: Draws) -> Bytes:
    """Raise the value of HSV: the brightest channel goes up, the others in proportion."""
    amount = level.of((0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5))
    values = to_unit(images)
    top = brightest(values)
    values *= np.minimum(top + np.float32(amount), 1) / np.maximum(top, np.float32(1 / 255))
    values[top[..., 0] == 0] = amount  # black has no proportions to keep
    return to_bytes(values)
