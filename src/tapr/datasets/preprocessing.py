"""How an image of any size becomes the pixels that a model takes."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tapr.datasets.images import read_image
from tapr.errors import DataError
from tapr.registry import Registry

INTERPOLATIONS: Registry[Image.Resampling] = Registry(
    "interpolation",
    {name.lower(): method for name, method in Image.Resampling.__members__.items()},
)
CROP_MODES = Registry("crop_mode", {name: name for name in ("center", "squash")})
LARGEST = 1 << 28  # pixels of an image before it is cropped; beyond, memory may not suffice


class Preprocessing(NamedTuple):
    """How an image is resized, cropped and normalised before the model sees it."""

    size: tuple[int, int, int]  # channels, height, width
    crop: float = 1.0  # the share of the shorter side that is kept
    mode: str = "center"  # "squash" gives up the proportions instead of the edges
    interpolation: str = "bilinear"
    mean: tuple[float, ...] | None = None  # None: as the model does it itself, if it does
    std: tuple[float, ...] | None = None

    def read(self, path: Path) -> NDArray[np.uint8]:
        """Read an image file as [H, W, C]; DataError says why when that fails."""
        return self.prepare(read_image(path))

    def prepare(self, image: Image.Image) -> NDArray[np.uint8]:
        """Resize an RGB image until the crop just fits, and crop it to its centre."""
        channels, height, width = self.size
        around = int(height / self.crop), int(width / self.crop)
        factor = max(around[0] / image.height, around[1] / image.width)
        if self.mode == "center":  # rounded down, as torchvision and timm do
            sides = int(image.height * factor + 1e-6), int(image.width * factor + 1e-6)
            around = max(sides[0], around[0]), max(sides[1], around[1])
        if around[0] * around[1] > LARGEST:
            raise DataError(
                f"too long for its width: of {image.height} x {image.width} pixels, it would be "
                f"resized to {around[0]} x {around[1]}"
            )
        if around != (image.height, image.width):
            image = image.resize(around[::-1], INTERPOLATIONS[self.interpolation])
        top, left = round((around[0] - height) / 2), round((around[1] - width) / 2)
        cropped = image.crop((left, top, left + width, top + height))
        pixels = np.asarray(cropped.convert("L") if channels == 1 else cropped)
        return pixels.reshape(height, width, channels)

    def __str__(self) -> str:
        channels, height, width = self.size
        part = f"{self.crop:.3g} of the shorter side, " if self.crop < 1 else ""
        text = f"{self.mode}, {part}{channels} x {height} x {width}, {self.interpolation}"
        if self.mean is None or self.std is None:
            return f"{text}; the model normalises them itself, if at all"
        mean, std = (" ".join(f"{v:.4g}" for v in values) for values in (self.mean, self.std))
        return f"{text}; normalised by mean {mean}, deviation {std}"
