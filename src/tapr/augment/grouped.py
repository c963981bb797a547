"""One op per image over a whole batch: images are grouped by op, each op runs once per group."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment import enhance, geometry, levels, tone
from tapr.augment.levels import Values


class Draw(NamedTuple):
    """One op for each image of a batch, or several in a row, with their parameters and places."""

    op: NDArray[np.int64]  # [B] or [B, n], the op's place in NAMES
    value: Values  # the same, the op's parameter
    centre: Values  # [..., 2] in [0, 1), where cutout cuts


Run = Callable[[Tensor, Draw, str], Tensor]  # levels, sorted by op; the draw; the resampling


def _plain(kernel: Callable[[Tensor], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images)


def _valued(kernel: Callable[[Tensor, Values], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images, draw.value)


def _cutout(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return enhance.cutout(images, draw.value, draw.centre)


def _enhanced(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return enhance.enhanced(images, draw.value, dict(_each(draw)))


def _looked_up(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return tone.looked_up(images, int((draw.op == EQUALIZE).sum()))


def _moved(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """Ops that differ only in their matrices run as one."""
    return geometry.RESAMPLING[resample](images, _matrices(images, draw))


def _shifted(images: Tensor, draw: Draw, resample: str) -> Tensor:
    """AugMix, which interpolates, shifts by whole pixels: there is nothing to interpolate."""
    fill = geometry.GREY if resample.endswith("-grey") else 0
    return geometry.shifted(images, _matrices(images, draw), fill)


def _matrices(images: Tensor, draw: Draw) -> Values:
    size = images.shape[2:]
    matrices = [geometry.MATRICES[op](draw.value[part], *size) for op, part in _each(draw)]
    return np.concatenate(matrices, axis=1)


def _each(draw: Draw) -> list[tuple[str, slice]]:
    """The ops of a sorted draw, each with its part of the images."""
    ops = draw.op.tolist()
    changes = [place for place, (one, two) in enumerate(pairwise(ops), 1) if one != two]
    bounds = pairwise([0, *changes, len(ops)])
    return [(NAMES[ops[start]], slice(start, end)) for start, end in bounds]


class Family(NamedTuple):
    """Ops that run together, in the order in which they stand here, and the caption of each."""

    captions: dict[str, str]
    run: Run


FAMILIES: Sequence[Family] = (
    Family({"invert": "invert"}, _plain(tone.invert)),
    Family({"solarize": "solarize from {:.0f}"}, _valued(tone.solarize)),
    Family({"solarize_add": "solarize add {:.0f}"}, _valued(tone.solarize_add)),
    Family({"posterize": "posterize {:.0f}-bit"}, _valued(tone.posterize)),
    Family({"equalize": "equalize", "autocontrast": "autocontrast"}, _looked_up),
    Family(
        {
            "brightness": "brightness {:.2f}",
            "contrast": "contrast {:.2f}",
            "color": "color {:.2f}",
            "sharpness": "sharpness {:.2f}",
        },
        _enhanced,
    ),
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
CAPTIONS = {"identity": "identity"} | {
    name: text for family in FAMILIES for name, text in family.captions.items()
}
# Their order is that of the numbers in stored draws.
NAMES = (
    *("identity", "invert", "solarize", "solarize_add", "posterize", "brightness", "autocontrast"),
    *("equalize", "contrast", "color", "sharpness", "cutout", "rotate", "shear_x", "shear_y"),
    *("translate_x", "translate_y"),
)
IDENTITY, EQUALIZE = NAMES.index("identity"), NAMES.index("equalize")
COPIES = 4  # that a group's temporaries amount to: the smaller groups are, the more they cost
_RANK = np.array([list(CAPTIONS).index(name) for name in NAMES])  # how ops are sorted: by family
_STARTS = np.cumsum([1, *(len(family.captions) for family in FAMILIES)])  # the families' ranks


def apply(images: Tensor, draw: Draw, resample: str, copies: int = 1) -> Tensor:
    """Run on each of the levels [B, C, H, W] the ops drawn for it, n in a row.

    With `copies` there are so many draws, next to each other, and so many results for each image.
    """
    here = np.arange(len(draw.op))  # whose draw it is that stands at each place: they stay sorted
    source = here // copies
    for step in range(draw.op.shape[1]):
        rank = _RANK[draw.op[here, step]]
        order = np.argsort(rank, kind="stable")
        here, rank, source = here[order], rank[order], source[order]
        images = images.index_select(0, torch.from_numpy(source).to(images.device))
        sorted_ = Draw(draw.op[here, step], draw.value[here, step], draw.centre[here, step])
        starts = np.searchsorted(rank, _STARTS).tolist()
        for family, (start, end) in zip(FAMILIES, pairwise(starts), strict=True):
            if start < end:
                _run(family, images, sorted_, start, end, resample)
        source = np.arange(len(here))
    return images.index_select(0, torch.from_numpy(np.argsort(here)).to(images.device))


def _run(family: Family, images: Tensor, draw: Draw, start: int, end: int, resample: str) -> None:
    for part in levels.chunks(images, COPIES, start, end):
        drawn = Draw(draw.op[part], draw.value[part], draw.centre[part])
        images[part] = family.run(images[part], drawn, resample)


def caption(op: int, value: float) -> str:
    """Caption an image with an op and its parameter."""
    return CAPTIONS[NAMES[op]].format(value)
