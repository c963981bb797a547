"""Images that stay on disk and are decoded when they are asked for."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tapr.datasets.base import Pixels
from tapr.datasets.images import probe
from tapr.errors import DataError

A = TypeVar("A")
B = TypeVar("B")
Read = Callable[[str], Any]  # an image's name -> its bytes, or whatever `Prepare` takes
Prepare = Callable[[Any], Pixels]  # [H, W, C], of the size the model takes

_WORKERS = min(4, os.cpu_count() or 1)  # Pillow decodes outside the interpreter lock
_AT_ONCE = 256  # files in flight


class LazyImages:
    """Images on disk, indexed like an array [N, H, W, C]; each access decodes them anew."""

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(
        self,
        names: Sequence[str],
        read: Read,
        prepare: Prepare,
        shape: tuple[int, int, int],
        threads: int = _WORKERS,
    ) -> None:
        self.names = tuple(names)
        self.shape = (len(names), *shape)
        self._threads = threads
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
        for place, image in enumerate(in_threads(self._decode, names, self._threads)):
            images[place] = image
        return images

    def unreadable(self, numbers: NDArray[np.int64]) -> dict[int, str]:
        """Which of these images cannot be decoded, and why; every one of them is read."""
        found = in_threads(self._why_not, (self.names[number] for number in numbers), self._threads)
        return {int(n): why for n, why in zip(numbers, found, strict=True) if why}

    def _why_not(self, name: str) -> str:
        try:
            probe(self._read(name))
        except (OSError, DataError) as error:
            return str(error)
        return ""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:] if dtype is None else self[:].astype(dtype)

    def _decode(self, name: str) -> Pixels:
        try:
            pixels = self._prepare(self._read(name))
        except (OSError, DataError) as error:
            raise DataError(f"cannot read the image {name}: {error}") from error
        if pixels.shape != self.shape[1:]:
            raise DataError(
                f"{name}: expected an image of {_by(self.shape[1:])}, got {_by(pixels.shape)}"
            )
        return pixels


def in_threads(
    function: Callable[[A], B], items: Iterable[A], threads: int = _WORKERS
) -> Iterator[B]:
    """Map a function over items in a few threads: results in order, only a few held at a time."""
    pending = iter(items)
    with ThreadPoolExecutor(threads) as pool:
        while chunk := list(islice(pending, _AT_ONCE)):
            yield from pool.map(function, chunk)


def _by(shape: Sequence[int]) -> str:
    return f"{shape[0]} x {shape[1]} pixels"
