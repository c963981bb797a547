"""One op per image over a whole batch: images are grouped by op, each op runs once per group."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment import enhance, geometry, levels, tone
from tapr.augment.levels import Values


class Draw(NamedTuple):
    """One op for each image of a batch, with its parameter and place."""

    op: NDArray[np.int64]  # [B], the op's place in NAMES
    value: Values  # [B], the op's parameter
    centre: Values  # [B, 2] in [0, 1), where cutout cuts


Run = Callable[[Tensor, Draw, str], Tensor]  # levels, sorted by op; the draw; the resampling


def _plain(kernel: Callable[[Tensor], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images)


def _valued(kernel: Callable[[Tensor, Values], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images, draw.value)


def _cutout(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return enhance.cutout(images, draw.value, draw.centre)


def _each(draw: Draw) -> Iterator[tuple[str, Values]]:
    """Split a sorted draw into its ops, each with its values."""
    starts = np.flatnonzero(np.diff(draw.op, prepend=-1)).tolist()
    for start, end in pairwise([*starts, len(draw.op)]):
        yield NAMES[draw.op[start]], draw.value[start:end]


def _moved(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """Ops that differ only in their matrices run as one."""
    return geometry.RESAMPLING[resample](images, _matrices(images, draw))


def _shifted(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """AugMix, which interpolates, shifts by whole pixels: there is nothing to interpolate."""
    fill = geometry.GREY if resample.endswith("-grey") else 0
    return geometry.shifted(images, _matrices(images, draw), fill)


def _matrices(images: Tensor, draw: Draw) -> Values:
    matrices = [geometry.MATRICES[op](v, *images.shape[2:]) for op, v in _each(draw)]
    return np.concatenate(matrices, axis=1)


class Family(NamedTuple):
    """Ops that run together, and the caption of each."""

    captions: dict[str, str]
    run: Run


FAMILIES: Sequence[Family] = (
    Family({"identity": "identity"}, _plain(lambda images: images)),
    Family({"invert": "invert"}, _plain(tone.invert)),
    Family({"solarize": "solarize from {:.0f}"}, _valued(tone.solarize)),
    Family({"solarize_add": "solarize add {:.0f}"}, _valued(tone.solarize_add)),
    Family({"posterize": "posterize {:.0f}-bit"}, _valued(tone.posterize)),
    Family({"brightness": "brightness {:.2f}"}, _valued(tone.brightness)),
    Family({"autocontrast": "autocontrast"}, _plain(tone.autocontrast)),
    Family({"equalize": "equalize"}, _plain(tone.equalize)),
    Family({"contrast": "contrast {:.2f}"}, _valued(tone.contrast)),
    Family({"color": "color {:.2f}"}, _valued(enhance.color)),
    Family({"sharpness": "sharpness {:.2f}"}, _valued(enhance.sharpness)),
    Family({"cutout": "cutout {:.0f} px"}, _cutout),
    Family(
        {"rotate": "rotate {:+.3g}°", "shear_x": "shear x {:+.3f}", "shear_y": "shear y {:+.3f}"},
        _moved,
    ),
    Family(
        {"translate_x": "translate x {:+.3g} px", "translate_y": "translate y {:+.3g} px"},
        _shifted,
    ),
)
CAPTIONS = {name: text for family in FAMILIES for name, text in family.captions.items()}
NAMES = tuple(CAPTIONS)
IDENTITY = NAMES.index("identity")
COPIES = 8  # that a group's temporaries amount to: the smaller groups are, the more they cost
_LAST = np.cumsum([len(family.captions) for family in FAMILIES])  # each family's end in NAMES


def apply(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """Run on each of the levels [B, C, H, W] the op drawn for it."""
    order = np.argsort(draw.op, kind="stable")
    draw = Draw(draw.op[order], draw.value[order], draw.centre[order])
    images = images.index_select(0, torch.from_numpy(order).to(images.device))
    ends = np.searchsorted(draw.op, _LAST).tolist()
    changed = torch.empty_like(images)
    for family, start, end in zip(FAMILIES, [0, *ends], ends, strict=False):
        for part in levels.chunks(images, COPIES, start, end):
            drawn = Draw(draw.op[part], draw.value[part], draw.centre[part])
            changed[part] = family.run(images[part], drawn, resample)
    return changed.index_select(0, torch.from_numpy(np.argsort(order)).to(images.device))


def caption(op: int, value: float) -> str:
    """Caption an image with an op and its parameter."""
    return CAPTIONS[NAMES[op]].format(value)
