"""The draws of the original corruptions, image by image, for our functions to use as their own.

The original draws from numpy's global generator of old; here, from one of that kind and any seed.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tapr.corruptions import CORRUPTIONS
from tapr.corruptions.common import Draws, Level
from tapr.corruptions.photographs import photographs

Old = np.random.RandomState
Drawn = list[NDArray[np.float64]]  # one array per call that our function makes


class Replay(Draws):
    """Draws that were made before: [image][call], uniform ones in units of their range."""

    def __init__(self, drawn: Sequence[Drawn]) -> None:
        self._calls = iter([np.stack(call) for call in zip(*drawn, strict=True)])

    def _next(self, shape: tuple[int, ...]) -> NDArray[np.float32]:
        return next(self._calls).reshape(-1, *shape).astype(np.float32)

    def normal(self, *shape: int) -> NDArray[np.float32]:
        return self._next(shape)

    def uniform(self, low: float, high: float, *shape: int) -> NDArray[np.float32]:
        return np.float32(low) + np.float32(high - low) * self._next(shape)

    def integers(self, low: int, high: int, *shape: int) -> NDArray[np.int16]:
        return self._next(shape).astype(np.int16)

    def poisson(self, rates: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._next(rates.shape[1:])


def glass(old: Old, severity: int) -> Drawn:
    rounds = [np.zeros((2, 32, 32)) for _ in range({3: 1, 5: 2}[severity])]
    for offsets in rounds:
        for row in range(31, 1, -1):
            for column in range(31, 1, -1):
                offsets[::-1, row, column] = old.randint(-1, 1, size=2)
    return rounds


def cloud(old: Old) -> Drawn:
    lots = np.zeros((32, 32))
    step = 32
    while step >= 2:
        half = step // 2
        for first_row, first_column in ((half, half), (0, half), (half, 0)):
            places = lots[first_row::step, first_column::step]
            places[...] = old.random_sample(places.shape)
        step = half
    return [lots]


def crop(old: Old) -> Drawn:
    which = old.randint(5)
    height, width = (size // 5 - 32 for size in photographs()[which].shape[:2])
    top, left = old.randint(height), old.randint(width)
    return [np.array([(which + 0.5) / 5, (top + 0.5) / height, (left + 0.5) / width])]


# How the original draws for one image: severity and clean image are there for those who need them.
REPLAYS: dict[str, Callable[[Old, int, NDArray[np.uint8]], Drawn]] = {
    "gaussian_noise": lambda old, severity, image: [old.standard_normal((32, 32, 3))],
    "speckle_noise": lambda old, severity, image: [old.standard_normal((32, 32, 3))],
    "shot_noise": lambda old, severity, image: [
        old.poisson(image / 255 * {3: 100, 5: 50}[severity]).astype(float)
    ],
    "glass_blur": lambda old, severity, image: glass(old, severity),
    "motion_blur": lambda old, severity, image: [old.random_sample(1)],
    "snow": lambda old, severity, image: [old.standard_normal((32, 32)), old.random_sample(1)],
    "frost": lambda old, severity, image: crop(old),
    "fog": lambda old, severity, image: cloud(old),
    "spatter": lambda old, severity, image: [old.standard_normal((32, 32))],
    "elastic_transform": lambda old, severity, image: [
        old.random_sample((3, 2)),
        old.random_sample((2, 32, 32))[::-1],
    ],
}


def replayed(images: NDArray[np.uint8], name: str, severity: int, seed: int) -> NDArray[np.uint8]:
    """Our arithmetic with the original's draws."""
    old = Old(seed)
    draws = Replay([REPLAYS[name](old, severity, image) for image in images])
    return CORRUPTIONS[name](images, Level(severity, large=False), draws)
