"""AugMix: chains of ops side by side, mixed with each other and with the original image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment import levels
from tapr.augment.base import LONGEST, Augmentation, between, flag, positive, whole
from tapr.augment.grouped import IDENTITY, Draw, apply, caption
from tapr.augment.levels import Values
from tapr.augment.scales import NO_LEVEL, PAPER, SHEAR, Range, Scale, along, enhancements
from tapr.registry import Registry

HIGHEST = 10
LOWEST = 0.1
LISTS = Registry(
    "list of ops",
    {
        "paper": PAPER,
        "released": (
            *("autocontrast", "equalize", "posterize", "rotate", "solarize"),
            *("shear_x", "shear_y", "translate_x", "translate_y"),
        ),
    },
)
_BOTH = NO_LEVEL | {
    **along("shear", SHEAR),
    **along("translate", Range(0, 1 / 3, signed=True, whole=True, relative=True)),
    "rotate": Range(0, 30, signed=True, whole=True),
    "solarize": Range(256, 0, whole=True),
}
SCALES = Registry(
    "scale",
    {
        "released": _BOTH
        | enhancements(Range(0.1, 1.9))
        | {"posterize": Range(4, 0, whole=True, least=1)},
        "centred": _BOTH
        | enhancements(Range(1, 1.9, signed=True))
        | {"posterize": Range(8, 4, whole=True)},
    },
)


class AugMixParams(NamedTuple):
    """The draws of AugMix for each image; `torch.save` takes their `_asdict()`."""

    op: Tensor  # [B, width, depth] int64, places in `NAMES`
    level: Tensor  # [B, width, depth] float64, 0.1 to severity
    value: Tensor  # [B, width, depth] float64, the op's parameter in its own unit
    length: Tensor  # [B, width] int64: how many of the ops are applied
    weight: Tensor  # [B, width] float64, the chains' parts of the mix
    keep: Tensor  # [B] float64, the original image's part of the result


class AugMix(Augmentation):
    """Mixes every image with the mix of `width` chains of 1 to `depth` ops, each drawn for it.

    Levels are uniform from 0.1 to `severity` of 10. `ops` is the name of a list ("paper",
    "released") or a sequence of names; with `fixed` every chain has exactly `depth` ops, with
    `grey` ops that move pixels leave grey behind instead of black.

    >>> generator = torch.Generator().manual_seed(0)
    >>> AugMix(width=3)(torch.rand(4, 3, 32, 32, generator=generator), generator).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def __init__(
        self,
        severity: float = 2,
        width: int = 1,
        depth: int = 3,
        alpha: float = 1.0,
        scale: str = "released",
        ops: str | Sequence[str] = "paper",
        fixed: bool = False,
        grey: bool = False,
    ) -> None:
        super().__init__()
        self.severity = between("severity", severity, LOWEST, HIGHEST)
        self.width = whole("width", width, 1, LONGEST)
        self.depth = whole("depth", depth, 1, LONGEST)
        self.alpha = positive("alpha", alpha)
        self.scale, self.ops = scale, ops
        self.fixed, self.grey = flag("fixed", fixed), flag("grey", grey)
        self._scale = Scale(SCALES[scale])
        self._places = self._scale.places(LISTS[ops] if isinstance(ops, str) else ops)

    @classmethod
    def released(cls) -> AugMix:
        """As the paper's authors ran it: 9 ops, three chains of three, severity 1."""
        return cls(severity=1, width=3, depth=3, ops="released", fixed=True)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> AugMixParams:
        """Draw the chains and the weights of the mixture for a batch of this shape."""
        count, size = shape[0], (shape[0], self.width, self.depth)
        op = self._places.take(torch.randint(len(self._places), size, generator=generator))
        level = torch.rand(size, generator=generator, dtype=torch.float64)
        level = LOWEST + (self.severity - LOWEST) * level
        value = self._scale.values(op, level / HIGHEST, shape, generator)
        shortest = self.depth if self.fixed else 1
        length = torch.randint(shortest, self.depth + 1, size[:2], generator=generator)
        weight = self._dirichlet((count, self.width), generator)
        keep = self._dirichlet((count, 2), generator)[:, 0]  # Beta(alpha, alpha)
        return AugMixParams(op, level, value, length, weight, keep)

    def _dirichlet(self, size: tuple[int, int], generator: torch.Generator) -> Tensor:
        # Gamma(a) = Gamma(a + 1) U^(1/a), in logarithms: no underflow however small alpha is.
        shape = torch.full(size, self.alpha + 1, dtype=torch.float64)
        gamma = torch._standard_gamma(shape, generator=generator)
        uniform = torch.rand(size, generator=generator, dtype=torch.float64)
        return (gamma.log() + (1 - uniform).log() / self.alpha).softmax(dim=1)

    def transform(self, images: Tensor, params: AugMixParams) -> Tensor:
        """Run the drawn chains, and mix their results with the original images."""
        levels.check(images)
        weights = _weights(params, images)
        drawn = [part.cpu().numpy() for part in (params.op, params.value, params.length)]
        result = torch.empty_like(images)
        with torch.inference_mode():
            for part in levels.chunks(images, wide=params.op.shape[1]):
                op, value, length = (each[part] for each in drawn)
                resample = "bilinear-grey" if self.grey else "bilinear"
                chains = _run(levels.to_levels(images[part]), (op, value, length), resample)
                _mix(images[part], chains, weights[part], result[part])
        return result

    def describe(self, params: AugMixParams) -> list[str]:
        """Caption each image with its chains, their parameters and weights."""
        captions = []
        for image, keep in enumerate(params.keep.tolist()):
            lines = [f"{keep:.0%} original"]
            for chain, length in enumerate(params.length[image].tolist()):
                steps = params.op[image, chain, :length], params.value[image, chain, :length]
                names = map(caption, *(step.tolist() for step in steps))
                part = (1 - keep) * params.weight[image, chain].item()
                lines.append(f"{part:.0%} " + "\nthen ".join(names))
            captions.append("\n".join(lines))
        return captions

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        names = ["severity", "width", "depth", "alpha", "scale", "ops", "fixed"]
        names += ["grey"] * self.grey
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


def _run(
    images: Tensor, drawn: tuple[NDArray[np.int64], Values, NDArray[np.int64]], resample: str
) -> Tensor:
    """The ends of all chains, [B, width, C, H, W]: they run side by side as one batch."""
    op, value, length = drawn
    count, width, depth = op.shape
    running = np.where(length[..., None] > np.arange(depth), op, IDENTITY)
    nowhere = np.zeros((count * width, depth, 2))
    draw = Draw(running.reshape(-1, depth), value.reshape(-1, depth), nowhere)
    return apply(images, draw, resample, copies=width).view(count, width, *images.shape[1:])


def _weights(params: AugMixParams, images: Tensor) -> Tensor:
    """The parts of the original image and of each chain's levels, [B, 1 + width, 1, 1, 1]."""
    whole = images.dtype == torch.uint8
    keep, weight = params.keep.cpu().numpy()[:, None], params.weight.cpu().numpy()
    weights = np.concatenate([keep, (1 - keep) * weight * (1 if whole else 1 / 255)], axis=1)
    kind = torch.float32 if whole else images.dtype
    return torch.from_numpy(weights).to(images.device, kind)[..., None, None, None]


def _mix(images: Tensor, chains: Tensor, weights: Tensor, result: Tensor) -> None:
    whole = result.dtype == torch.uint8
    for part in levels.chunks(images, levels.WIDE):
        mixed = torch.mul(images[part], weights[part, 0], out=None if whole else result[part])
        for chain in range(chains.shape[1]):
            mixed.addcmul_(chains[part, chain].to(weights.dtype), weights[part, 1 + chain])
        if whole:
            result[part] = mixed.add_(0.5).short()
        else:
            mixed.clamp_(0, 1)
