"""RandAugment: n ops in a row, each drawn from a list, at a level up to m."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tapr.augment import levels
from tapr.augment.base import LONGEST, Augmentation, flag, whole
from tapr.augment.grouped import Draw, apply, caption
from tapr.augment.scales import NO_LEVEL, PAPER, SHEAR, Range, Scale, along, enhancements
from tapr.registry import Registry

HIGHEST = 30
LISTS = Registry(
    "list of ops",
    {
        "paper": PAPER,
        "released": (
            *("autocontrast", "equalize", "invert", "rotate", "posterize", "solarize"),
            *("solarize_add", "color", "contrast", "brightness", "sharpness", "shear_x"),
            *("shear_y", "cutout", "translate_x", "translate_y"),
        ),
    },
)
_BOTH = NO_LEVEL | {
    **along("shear", SHEAR),
    "rotate": Range(0, 30, signed=True),
    "solarize_add": Range(0, 110),
    "cutout": Range(0, 40),
}
SCALES = Registry(
    "scale",
    {
        "released": _BOTH
        | along("translate", Range(0, 100, signed=True))
        | enhancements(Range(0.1, 1.9))
        | {"solarize": Range(0, 256), "posterize": Range(0, 4, whole=True, least=1)},
        "centred": _BOTH
        | along("translate", Range(0, 0.45, signed=True, relative=True))
        | enhancements(Range(1, 1.9, signed=True))
        | {"solarize": Range(256, 0), "posterize": Range(8, 4, whole=True)},
    },
)


class RandAugmentParams(NamedTuple):
    """The draws of RandAugment for each image; `torch.save` takes their `_asdict()`."""

    op: Tensor  # [B, n] int64, places in `NAMES`
    level: Tensor  # [B, n] int64, 1 to 30
    value: Tensor  # [B, n] float64, the op's parameter in its own unit
    centre: Tensor  # [B, n, 2] float64 in [0, 1), where cutout cuts


class RandAugment(Augmentation):
    """Changes every image by `n` ops of its own, one after another, at levels up to `m` of 30.

    `ops` is the name of a list ("paper", "released") or a sequence of names; with `fixed` every
    level is `m`, without it is drawn from 1 to `m`.

    >>> generator = torch.Generator().manual_seed(0)
    >>> RandAugment(n=2, m=5)(torch.rand(4, 3, 32, 32, generator=generator), generator).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def __init__(
        self,
        n: int = 1,
        m: int = 1,
        scale: str = "released",
        ops: str | Sequence[str] = "paper",
        fixed: bool = False,
    ) -> None:
        super().__init__()
        self.n = whole("n", n, 1, LONGEST)
        self.m = whole("m", m, 1, HIGHEST)
        self.scale, self.ops, self.fixed = scale, ops, flag("fixed", fixed)
        self._scale = Scale(SCALES[scale])
        self._places = self._scale.places(LISTS[ops] if isinstance(ops, str) else ops)

    @classmethod
    def released(cls) -> RandAugment:
        """As the paper's authors ran it: 16 ops, always at level 1."""
        return cls(n=1, m=1, scale="released", ops="released", fixed=True)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> RandAugmentParams:
        """Draw the ops, levels, signs and places for a batch of this shape."""
        size = (shape[0], self.n)
        op = self._places[torch.randint(len(self._places), size, generator=generator)]
        lowest = self.m if self.fixed else 1
        level = torch.randint(lowest, self.m + 1, size, generator=generator)
        value = self._scale.values(op, level.double() / HIGHEST, shape, generator)
        centre = torch.rand(*size, 2, generator=generator, dtype=torch.float64)
        return RandAugmentParams(op, level, value, centre)

    def transform(self, images: Tensor, params: RandAugmentParams) -> Tensor:
        """Apply the drawn ops in their order."""
        levels.check(images)
        drawn = [part.cpu().numpy() for part in (params.op, params.value, params.centre)]
        result = torch.empty_like(images)
        with torch.inference_mode():
            for part in levels.chunks(images):
                draw = Draw(*(each[part] for each in drawn))
                changed = apply(levels.to_levels(images[part]), draw, "nearest")
                levels.write(changed, result[part])
        return result

    def describe(self, params: RandAugmentParams) -> list[str]:
        """Caption each image with its ops, their parameters and levels."""
        captions = []
        for drawn in zip(*(part.tolist() for part in params[:3]), strict=True):
            steps = zip(*drawn, strict=True)
            lines = [f"{caption(op, value)}\nlevel {level}" for op, level, value in steps]
            captions.append("\n".join(lines))
        return captions

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"n={self.n}, m={self.m}, scale={self.scale!r}, ops={self.ops!r}, fixed={self.fixed}"
