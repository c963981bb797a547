"""What the corruptions share: levels, a stream of draws for every image, and pixel values."""

from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]  # images [N, H, W, 3]
Floats = NDArray[np.float32]
T = TypeVar("T")


class Level(NamedTuple):
    """A severity, with CIFAR-10-C's constants (small images) or ImageNet-C's (large ones)."""

    severity: int
    large: bool

    def of(self, small: tuple[T, ...], large: tuple[T, ...]) -> T:
        """Pick this severity's constant: from `small` for CIFAR sizes, from `large` above them."""
        return (large if self.large else small)[self.severity - 1]


class Draws:
    """Randomness for a batch: an image's draws depend on nothing but the key and its number."""

    def __init__(self, key: int, indices: NDArray[np.int64]) -> None:
        self._bits = np.random.Philox(key=key)
        self._start = self._bits.state
        self._generator = np.random.Generator(self._bits)
        self._indices = indices
        self._draw = 0

    def _each(self) -> Iterator[np.random.Generator]:
        """The generator, moved for each image to a stretch that no other image or draw reaches."""
        self._draw += 1
        counter = self._start["state"]["counter"]
        for index in self._indices.tolist():
            counter[:] = 0, 0, self._draw, index
            self._bits.state = self._start
            yield self._generator

    def normal(self, *shape: int) -> Floats:
        """Standard normal values [N, *shape]."""
        drawn = np.empty((len(self._indices), *shape), np.float32)
        for row, generator in zip(drawn, self._each(), strict=True):
            generator.standard_normal(out=row, dtype=np.float32)
        return drawn

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Values [N, *shape] even in [low, high)."""
        drawn = np.empty((len(self._indices), *shape), np.float32)
        for row, generator in zip(drawn.reshape(len(drawn), -1), self._each(), strict=True):
            generator.random(out=row, dtype=np.float32)
        drawn *= high - low
        drawn += low
        return drawn

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int16]:
        """Whole numbers [N, *shape] even in low .. high - 1."""
        drawn = np.empty((len(self._indices), *shape), np.int16)
        for row, generator in zip(drawn, self._each(), strict=True):
            row[...] = generator.integers(low, high, shape, dtype=np.int16)
        return drawn

    def poisson(self, rates: Floats) -> Floats:
        """A Poisson count for every rate [N, ...]."""
        drawn = np.empty_like(rates)
        for row, rate, generator in zip(drawn, rates, self._each(), strict=True):
            row[...] = generator.poisson(rate)
        return drawn


def to_unit(images: Bytes) -> Floats:
    """Bytes as floats in [0, 1]."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def to_bytes(values: NDArray[np.floating]) -> Bytes:
    """Floats around [0, 1] as bytes: clipped, then truncated as the published sets are."""
    clipped: NDArray[np.floating] = np.clip(values, 0, 1)
    return (clipped * 255).astype(np.uint8)


def brightest(values: Floats) -> Floats:
    """The largest of a pixel's three channels, [N, H, W, 1]: the value of HSV."""
    # Three slices: numpy's maximum over an axis of three is ten times slower.
    first, second, third = (values[..., channel : channel + 1] for channel in range(3))
    return np.maximum(np.maximum(first, second), third)
