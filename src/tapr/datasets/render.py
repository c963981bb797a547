"""Digits drawn by a renderer: fonts, batched, each image decided by the seed and its number alone.

A glyph is kept as a field of distances to its outline, so one bilinear look-up per pixel gives any
size, slant, turn and thickness, with smooth edges.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tapr import rng
from tapr.datasets.base import Labels, Pixels
from tapr.errors import DataError

Floats = NDArray[np.float32]

SIDE = 32  # of a rendering, in pixels
GLYPH, CANVAS = 64, 96  # height of a glyph, and side of its field of distances
BATCH = 250  # renderings made at once
FONTS = (
    *("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    *("DejaVuSansMono", "DejaVuSansMono-Bold"),
    *("DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic"),
    *("STIXGeneral", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("cmb10", "cmmi10", "cmr10", "cmtt10"),
)
HELD_OUT = ("DejaVuSerif-Italic", "STIXGeneralBol", "cmss10", "cmti10")
RANGES = {  # every property of a rendering is even between two values
    "height": (16.0, 29.0),  # pixels
    "width": (0.75, 1.25),  # times the font's own
    "slant": (-0.3, 0.3),  # pixels to the side per pixel upwards
    "turn": (-0.17, 0.17),  # radians: 10 degrees
    "across": (-1.0, 1.0),  # position: from touching one edge to touching the other
    "down": (-1.0, 1.0),
    "thickness": (-0.015, 0.06),  # added on each side of a stroke, times the height
    "softness": (1.0, 4.0),  # pixels from ink to background
    "contrast": (0.3, 1.0),  # between ink and background, of full range
    "level": (0.0, 1.0),  # where the darker of the two lies in the room the contrast leaves
    "light": (-0.15, 0.15),  # how much brighter the background is at one edge than in the middle
    "angle": (0.0, 2 * np.pi),  # at which edge
    "noise": (0.0, 0.05),  # standard deviation, of full range
}
TINT = 0.08  # how far a channel strays from grey


class Drawn(NamedTuple):
    """The draws of a batch of renderings."""

    values: dict[str, Floats]  # of RANGES, [N]
    font: NDArray[np.int64]  # [N]
    lighter: NDArray[np.bool_]  # [N] is the ink lighter than the background?
    tints: Floats  # [N, 2, 3] of background and ink
    noise: Floats  # [N, SIDE, SIDE, 3] standard normal


def render(seed: int, count: int, fonts: tuple[str, ...] = FONTS) -> tuple[Pixels, Labels]:
    """Draw `count` digits; number i shows the digit i % 10."""
    fields = distances(fonts)
    labels = np.arange(count) % 10
    images = np.empty((count, SIDE, SIDE, 3), np.uint8)
    for first in range(0, count, BATCH):
        part = slice(first, min(first + BATCH, count))
        drawn = draw(seed, range(part.start, part.stop), len(fonts))
        images[part] = compose(coverage(fields, drawn, labels[part]), drawn)
    return images, labels


def draw(seed: int, numbers: range, fonts: int) -> Drawn:
    """The draws of these images; an image's depend on nothing but the seed and its number."""
    even = np.empty((len(numbers), len(RANGES)), np.float32)
    font = np.empty(len(numbers), np.int64)
    lighter = np.empty(len(numbers), np.bool_)
    tints = np.empty((len(numbers), 2, 3), np.float32)
    noise = np.empty((len(numbers), SIDE, SIDE, 3), np.float32)
    key = rng.derive(seed, "renderings")
    for row, number in enumerate(numbers):
        random = np.random.default_rng((key, number))
        font[row], lighter[row] = random.integers(fonts), random.integers(2)
        random.random(out=even[row], dtype=np.float32)
        tints[row] = random.uniform(-TINT, TINT, (2, 3))
        random.standard_normal(out=noise[row], dtype=np.float32)
    values = {
        name: low + (high - low) * even[:, column]
        for column, (name, (low, high)) in enumerate(RANGES.items())
    }
    return Drawn(values, font, lighter, tints, noise)


def coverage(fields: Floats, drawn: Drawn, labels: Labels) -> Floats:
    """How much of each pixel is ink [N, SIDE, SIDE], from 0 to 1."""
    value = {name: values[:, None, None] for name, values in drawn.values.items()}
    height = value["height"]
    right = value["across"] * (SIDE - height) / 2
    low = value["down"] * (SIDE - height) / 2
    y, x = np.mgrid[:SIDE, :SIDE].astype(np.float32) - (SIDE - 1) / 2
    x, y = x - right, y - low
    sine, cosine = np.sin(value["turn"]), np.cos(value["turn"])
    x, y = cosine * x + sine * y, cosine * y - sine * x
    x = (x + value["slant"] * y) / value["width"]
    scale = GLYPH / height
    middle = (CANVAS - 1) / 2
    which = drawn.font * 10 + labels
    inside = _look_up(fields, which, middle + scale * y, middle + scale * x) / scale
    ink = 0.5 + (inside + value["thickness"] * height) / value["softness"]
    return np.clip(ink, 0, 1)


def compose(ink: Floats, drawn: Drawn) -> Pixels:
    """Ink on a background that is unevenly lit, tinted and noisy, as bytes [N, SIDE, SIDE, 3]."""
    value = {name: values[:, None, None, None] for name, values in drawn.values.items()}
    dark = value["level"] * (1 - value["contrast"])
    light = dark + value["contrast"]
    lighter = drawn.lighter[:, None, None, None]
    y, x = np.mgrid[:SIDE, :SIDE, :1][:2].astype(np.float32) / (SIDE - 1) * 2 - 1
    slope = value["light"] * (np.cos(value["angle"]) * x + np.sin(value["angle"]) * y)
    background = np.where(lighter, dark, light) + drawn.tints[:, None, None, 0] + slope
    foreground = np.where(lighter, light, dark) + drawn.tints[:, None, None, 1]
    mixed = background + ink[..., None] * (foreground - background) + value["noise"] * drawn.noise
    images: Pixels = np.rint(np.clip(mixed, 0, 1) * 255).astype(np.uint8)
    return images


@cache
def distances(fonts: tuple[str, ...]) -> Floats:
    """Fields [fonts, 10, CANVAS, CANVAS]: pixels to a glyph's outline, positive inside."""
    folder = font_folder()
    return np.stack([[_field(folder / f"{font}.ttf", d) for d in "0123456789"] for font in fonts])


def font_folder() -> Path:
    """Where matplotlib keeps its fonts; found without importing it, which takes a second."""
    found = find_spec("matplotlib")
    if found is None or found.origin is None:
        raise DataError(
            "rendered digits need matplotlib's fonts, and it is not installed: "
            "pip install 'torch-tapr[digits]'"
        )
    return Path(found.origin).parent / "mpl-data" / "fonts" / "ttf"


def _field(path: Path, digit: str) -> Floats:
    """The glyph at twice the size, its box in the middle, measured, and halved again."""
    try:
        font = ImageFont.truetype(path, 4 * GLYPH)
    except OSError as error:
        raise DataError(f"cannot read the font {path}: {error}") from error
    sheet = Image.new("L", (8 * GLYPH, 8 * GLYPH))
    ImageDraw.Draw(sheet).text((GLYPH, GLYPH), digit, 255, font)
    box = sheet.getbbox()
    if box is None:
        raise DataError(f"{path} has no digit {digit}")
    width = round((box[2] - box[0]) * 2 * GLYPH / (box[3] - box[1]))
    glyph = sheet.crop(box).resize((width, 2 * GLYPH), Image.Resampling.BICUBIC)
    canvas = Image.new("L", (2 * CANVAS, 2 * CANVAS))
    canvas.paste(glyph, (CANVAS - width // 2, CANVAS - GLYPH))
    ink = (np.asarray(canvas) > 127).astype(np.uint8)
    inner, outer = (
        cv2.distanceTransform(part, cv2.DIST_L2, cv2.DIST_MASK_PRECISE) for part in (ink, 1 - ink)
    )
    field: Floats = (inner - outer).reshape(CANVAS, 2, CANVAS, 2).mean((1, 3)) / 2
    return field


def _look_up(fields: Floats, which: NDArray[np.int64], y: Floats, x: Floats) -> Floats:
    """Bilinear values at y, x [N, h, w] of the fields `which` [N]; beyond the edge, the edge's."""
    y, x = (np.clip(place, 0, CANVAS - 1.001) for place in (y, x))
    top, left = np.floor(y), np.floor(x)
    y, x = y - top, x - left
    first = which[:, None, None] * CANVAS**2 + (top * CANVAS + left).astype(np.int64)
    values = fields.reshape(-1)
    upper, lower = (
        values[row] + x * (values[row + 1] - values[row]) for row in (first, first + CANVAS)
    )
    return upper + y * (lower - upper)
