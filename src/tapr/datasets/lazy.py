"""Images that stay on disk and are decoded when they are asked for."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tapr.datasets.base import Pixels
from tapr.errors import DataError

A = TypeVar("A")
B = TypeVar("B")
Read = Callable[[str], bytes]  # a file's name -> its bytes
Prepare = Callable[[Image.Image], Image.Image]  # to RGB, and to the size the model takes

_WORKERS = min(4, os.cpu_count() or 1)  # Pillow decodes outside the interpreter lock
_AT_ONCE = 256  # files in flight
_SIDEWAYS = range(5, 9)  # EXIF orientations that swap width and height
_ORIENTATION = 0x0112


class LazyImages:
    """Indexed like an array [N, H, W, 3] along its first axis; each access decodes anew."""

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self, names: Sequence[str], read: Read, prepare: Prepare, size: tuple[int, int]
    ) -> None:
        self.names = tuple(names)
        self.shape = (len(names), *size, 3)
        self._read = read
        self._prepare = prepare

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, key: int | slice | NDArray[np.integer] | Sequence[int]) -> Pixels:
        numbers = np.arange(len(self))[key]
        if numbers.ndim == 0:
            return self._decode(self.names[numbers])
        images = np.empty((len(numbers), *self.shape[1:]), np.uint8)
        names = [self.names[number] for number in numbers]
        for place, image in enumerate(in_threads(self._decode, names)):
            images[place] = image
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype)

    def _decode(self, name: str) -> Pixels:
        try:
            with Image.open(io.BytesIO(self._read(name))) as image:
                pixels = np.asarray(self._prepare(image))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise DataError(f"cannot read the image {name}: {error}") from error
        if pixels.shape != self.shape[1:]:
            raise DataError(
                f"{name}: expected an image of {_by(self.shape[1:])}, got {_by(pixels.shape)}"
            )
        return pixels


def in_threads(function: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Map in order over a few threads, holding only a few results at a time."""
    pending = iter(items)
    with ThreadPoolExecutor(_WORKERS) as pool:
        while chunk := list(islice(pending, _AT_ONCE)):
            yield from pool.map(function, chunk)


def probe(data: bytes) -> tuple[int, int]:
    """The (height, width) of an image, upright; raises DataError when it cannot be decoded."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            width, height = image.size
            sideways = image.getexif().get(_ORIENTATION) in _SIDEWAYS
            image.draft("RGB", (32, 32))  # a JPEG is then read whole, but decoded small
            image.load()
    except UnidentifiedImageError as error:  # whose own words are about a BytesIO object
        raise DataError("it is not an image, or of an unknown kind") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(str(error) or type(error).__name__) from error
    return (width, height) if sideways else (height, width)


def to_rgb(image: Image.Image) -> Image.Image:
    """Grey, palette, CMYK, 16-bit or transparent: as 8-bit RGB."""
    if image.mode == "RGB":
        return image
    if image.mode.startswith("I"):  # 16-bit grey: Pillow would clip, not scale
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image.convert("RGB")


def _by(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]} pixels"
