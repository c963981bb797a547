"""What the corruptions share: levels, a stream of draws for every image, and pixel values."""

from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]  # images [N, H, W, 3]
Floats = NDArray[np.float32]
T = TypeVar("T")


class Level(NamedTuple):
    """How strong, by CIFAR-10-C's constants (small images) or ImageNet-C's (large ones)."""

    severity: int
    large: bool

    def of(self, small: tuple[T, ...], large: tuple[T, ...]) -> T:
        """The constant of this severity: from `small` for CIFAR sizes, from `large` above them."""
        return (large if self.large else small)[self.severity - 1]


class Draws:
    """One stream of randomness for every image, which depends on nothing but its key and number."""

    def __init__(self, key: int, indices: NDArray[np.int64]) -> None:
        self._key = key
        self._indices = indices

    @cached_property
    def _generators(self) -> list[np.random.Generator]:
        return [
            np.random.Generator(np.random.Philox(key=[self._key, index]))
            for index in self._indices.tolist()
        ]

    def normal(self, *shape: int) -> Floats:
        """Standard normal values [N, *shape]."""
        drawn = np.empty((len(self._indices), *shape), np.float32)
        for generator, row in zip(self._generators, drawn, strict=True):
            generator.standard_normal(out=row, dtype=np.float32)
        return drawn

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Values [N, *shape] even in [low, high)."""
        drawn = np.empty((len(self._indices), *shape), np.float32)
        for generator, row in zip(self._generators, drawn.reshape(len(drawn), -1), strict=True):
            generator.random(out=row, dtype=np.float32)
        drawn *= high - low
        drawn += low
        return drawn

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int8]:
        """Small whole numbers [N, *shape] even in low .. high - 1."""
        drawn = np.empty((len(self._indices), *shape), np.int8)
        for generator, row in zip(self._generators, drawn, strict=True):
            row[...] = generator.integers(low, high, shape, dtype=np.int8)
        return drawn

    def poisson(self, rates: Floats) -> Floats:
        """A Poisson count for every rate [N, ...]."""
        drawn = np.empty_like(rates)
        for generator, row, rate in zip(self._generators, drawn, rates, strict=True):
            row[...] = generator.poisson(rate)
        return drawn


def to_unit(images: Bytes) -> Floats:
    """Bytes as floats in [0, 1]."""
    return np.divide(images, np.float32(255), dtype=np.float32)


def to_bytes(values: NDArray[np.floating]) -> Bytes:
    """Floats around [0, 1] as bytes: clipped, then truncated as the published sets are."""
    clipped: NDArray[np.floating] = np.clip(values, 0, 1)
    return (clipped * 255).astype(np.uint8)
