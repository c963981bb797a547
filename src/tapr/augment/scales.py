"""From a level to an op's parameter.

A level runs from 0 to the highest level (30 in RandAugment, 10 in AugMix); the parameter runs from
`start` to `end` with it. docs/augmentations.md shows the resulting numbers.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tapr.augment.grouped import NAMES
from tapr.errors import InputError
from tapr.registry import Registry


class Range(NamedTuple):
    """The parameter at level 0 and at the highest level."""

    start: float
    end: float
    signed: bool = False  # the way from `start` is taken in either direction
    whole: bool = False  # its length is rounded down to a whole number
    relative: bool = False  # its length is in sides of the image: the width for x, the height for y
    least: float = -math.inf  # the parameter itself is no less


SHEAR = Range(0, 0.3, signed=True)
NO_LEVEL = dict.fromkeys(("identity", "autocontrast", "equalize", "invert"), Range(0, 0))

PAPER = (
    *("identity", "autocontrast", "equalize", "rotate", "solarize", "color", "posterize"),
    *("contrast", "brightness", "sharpness", "shear_x", "shear_y", "translate_x", "translate_y"),
)


def enhancements(factor: Range) -> dict[str, Range]:
    """The same range for the four enhancement ops."""
    return dict.fromkeys(("color", "contrast", "brightness", "sharpness"), factor)


def along(stem: str, both: Range) -> dict[str, Range]:
    """The same range for the x and the y of an op."""
    return {f"{stem}_x": both, f"{stem}_y": both}


class Scale:
    """The ranges of some ops, ready to turn drawn levels into parameters."""

    def __init__(self, ranges: Mapping[str, Range]) -> None:
        rows = [ranges.get(name, Range(0, 0)) for name in NAMES]
        self.ranges = Registry("op", ranges)
        # In numpy, whose calls are quicker: a batch has few parameters.
        self._start, self._end, self._least = (
            np.array([row[field] for row in rows], dtype=np.float64) for field in (0, 1, 5)
        )
        self._signed, self._whole, relative = (
            np.array([row[field] for row in rows], dtype=np.bool_) for field in (2, 3, 4)
        )
        self._wide, self._high = (
            relative & np.array([name.endswith(end) for name in NAMES]) for end in ("_x", "_y")
        )

    def places(self, names: Sequence[str]) -> Tensor:
        """The places in `NAMES` of ops that have a range here."""
        if not isinstance(names, Sequence):
            raise InputError(f"expected ops as a list of names, got {names!r}")
        if not names:
            raise InputError("expected at least one op, got none")
        return torch.tensor([NAMES.index(name) for name in names if self.ranges[name]])

    def values(
        self, op: Tensor, part: Tensor, shape: Sequence[int], generator: torch.Generator
    ) -> Tensor:
        """The parameter of each op at `part` (0 to 1) of the highest level, signs drawn."""
        height, width = shape[-2:]
        span = (self._end - self._start) * np.where(self._wide, width, 1)
        span *= np.where(self._high, height, 1)
        drawn = torch.randint(2, op.shape, generator=generator, dtype=torch.bool).numpy()
        places = op.numpy()
        way = span[places] * part.numpy()
        way = np.where(self._whole[places], np.trunc(way), way)
        way[drawn & self._signed[places]] *= -1
        return torch.from_numpy(np.maximum(self._start[places] + way, self._least[places]))
