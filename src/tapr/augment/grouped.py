"""One op per image over a whole batch: images are grouped by op, each op runs once per group."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tapr.augment import enhance, geometry, tone
from tapr.registry import Registry


class Draw(NamedTuple):
    """What was drawn for each image of a batch, on the CPU."""

    op: Tensor  # [B] int64, the op's place in OPS
    value: Tensor  # [B] float64, the op's parameter
    centre: Tensor  # [B, 2] float64 in [0, 1), where cutout cuts


class Op(NamedTuple):
    """How an op is run on levels [b, C, H, W], and how its value is told to people."""

    run: Callable[[Tensor, Draw, str], Tensor]
    caption: str


def _plain(kernel: Callable[[Tensor], Tensor], caption: str) -> Op:
    return Op(lambda images, draw, resample: kernel(images), caption)


def _valued(kernel: Callable[[Tensor, Tensor], Tensor], caption: str) -> Op:
    return Op(lambda images, draw, resample: kernel(images, draw.value), caption)


def _moving(kernel: Callable[[Tensor, Tensor, str], Tensor], caption: str) -> Op:
    return Op(lambda images, draw, resample: kernel(images, draw.value, resample), caption)


OPS: Registry[Op] = Registry(
    "op",
    {
        "identity": _plain(lambda images: images, "identity"),
        "autocontrast": _plain(tone.autocontrast, "autocontrast"),
        "equalize": _plain(tone.equalize, "equalize"),
        "rotate": _moving(geometry.rotate, "rotate {:+.3g}°"),
        "solarize": _valued(tone.solarize, "solarize from {:.0f}"),
        "color": _valued(enhance.color, "color ×{:.2f}"),
        "posterize": _valued(tone.posterize, "posterize to {:.0f} bits"),
        "contrast": _valued(tone.contrast, "contrast ×{:.2f}"),
        "brightness": _valued(tone.brightness, "brightness ×{:.2f}"),
        "sharpness": _valued(enhance.sharpness, "sharpness ×{:.2f}"),
        "shear_x": _moving(geometry.shear_x, "shear x {:+.3f}"),
        "shear_y": _moving(geometry.shear_y, "shear y {:+.3f}"),
        "translate_x": _moving(geometry.translate_x, "translate x {:+.3g} px"),
        "translate_y": _moving(geometry.translate_y, "translate y {:+.3g} px"),
        "invert": _plain(tone.invert, "invert"),
        "solarize_add": _valued(tone.solarize_add, "solarize add {:.0f}"),
        "cutout": Op(
            lambda images, draw, resample: enhance.cutout(images, draw.value, draw.centre),
            "cutout {:.0f} px",
        ),
    },
)
NAMES = tuple(OPS)
IDENTITY = NAMES.index("identity")


def apply(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """Run on each of the levels [B, C, H, W] the op drawn for it."""
    if not len(images):
        return images
    order = draw.op.argsort(stable=True)
    counts = draw.op.bincount(minlength=len(NAMES)).tolist()
    groups = images.index_select(0, order.to(images.device)).split_with_sizes(counts)
    draws = zip(*(part[order].split_with_sizes(counts) for part in draw), strict=True)
    changed = [
        OPS[name].run(group, Draw(*drawn), resample)
        for name, group, drawn in zip(NAMES, groups, draws, strict=True)
        if len(group)
    ]
    return torch.cat(changed).index_select(0, order.argsort().to(images.device))


def caption(op: int, value: float) -> str:
    """What an op does to an image, for people."""
    return OPS[NAMES[op]].caption.format(value)
