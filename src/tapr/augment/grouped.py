"""One op per image over a whole batch: images are grouped by op, each op runs once per group."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

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


Plan = Callable[[Draw, Tensor, str], Any]  # draws, images of their size, resampling; rows
Run = Callable[[Tensor, Any, str], Tensor]  # levels, sorted by op; rows for them; resampling


def _plain(kernel: Callable[[Tensor], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images)


def _valued(kernel: Callable[[Tensor, Values], Tensor]) -> Run:
    return lambda images, draw, resample: kernel(images, draw.value)


def _cutout(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return enhance.cutout(images, draw.value, draw.centre)


def _enhanced(images: Tensor, draw: Draw, resample: str) -> Tensor:
    counts = np.bincount(draw.op, minlength=len(NAMES))[_ENHANCEMENTS].tolist()
    return enhance.enhanced(images, draw.value, counts)


def _looked_up(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return tone.looked_up(images, int((draw.op == EQUALIZE).sum()))


def _places(draw: Draw, images: Tensor, resample: str) -> Any:
    return geometry.RESAMPLING[resample].plan(_matrices(draw, images), images)


def _moved(images: Tensor, rows: Any, resample: str) -> Tensor:
    """Ops that differ only in their matrices run as one."""
    return geometry.RESAMPLING[resample].run(images, rows)


def _shifts(draw: Draw, images: Tensor, resample: str) -> geometry.Shifts:
    return geometry.shifts(_matrices(draw, images), images)


def _shifted(images: Tensor, by: geometry.Shifts, resample: str) -> Tensor:
    """AugMix, which interpolates, shifts by whole pixels: there is nothing to interpolate."""
    return geometry.shifted(images, by, geometry.GREY if resample.endswith("-grey") else 0)


def _matrices(draw: Draw, images: Tensor) -> Values:
    matrices = np.empty((len(draw.op), 6))
    for op in set(draw.op.tolist()):
        chosen = draw.op == op
        matrices[chosen] = geometry.MATRICES[NAMES[op]](draw.value[chosen], *images.shape[2:]).T
    return np.ascontiguousarray(matrices.T)


class Family(NamedTuple):
    """Ops that run together, in the order in which they stand here, and the caption of each."""

    captions: dict[str, str]
    run: Run
    plan: Plan | None = None  # turns the draws of all steps at once into rows; else they are rows


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
        _places,
    ),
    Family(
        {"translate_x": "translate x {:+.3g} px", "translate_y": "translate y {:+.3g} px"},
        _shifted,
        _shifts,
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
_ENHANCEMENTS = [NAMES.index(name) for name in enhance.NAMES]
_WIDE = 16  # bytes a level in a group: the smaller groups are, the more calls there are
_RANK = np.array([list(CAPTIONS).index(name) for name in NAMES])  # how ops are sorted: by family
_STARTS = np.cumsum([1, *(len(family.captions) for family in FAMILIES)])  # the families' ranks


def apply(images: Tensor, draw: Draw, resample: str, copies: int = 1) -> Tensor:
    """Run on each of the levels [B, C, H, W] the ops drawn for it, n in a row.

    With `copies` there are so many draws, next to each other, and so many results for each image.
    """
    order = np.argsort(_RANK[draw.op.T], axis=1, kind="stable")  # [n, B], whose draw stands where
    where = np.argsort(order, axis=1)  # [n, B], where each draw stands
    sources = np.array([order[0] // copies, *map(np.take, where, order[1:]), where[-1]])
    *moves, back = torch.from_numpy(sources).to(images.device).unbind()
    drawn = [Draw(*[part[here, step] for part in draw]) for step, here in enumerate(order)]
    starts = [np.searchsorted(_RANK[each.op], _STARTS).tolist() for each in drawn]
    plans = {
        number: _planned(family.plan, drawn, starts, number, images, resample)
        for number, family in enumerate(FAMILIES)
        if family.plan
    }
    for step, each in enumerate(drawn):
        images = images.index_select(0, moves[step])
        for number, (start, end) in enumerate(pairwise(starts[step])):
            if start < end:
                rows = plans[number][step] if number in plans else _rows(each, slice(start, end))
                _run(FAMILIES[number], images[start:end], rows, resample)
    return images.index_select(0, back)


def _planned(
    plan: Plan,
    drawn: list[Draw],
    starts: list[list[int]],
    number: int,
    images: Tensor,
    resample: str,
) -> list[Any]:
    """The rows of a family for each step: planned for all steps at once, since calls are dear."""
    parts = [slice(each[number], each[number + 1]) for each in starts]
    draws = [_rows(*each) for each in zip(drawn, parts, strict=True)]
    if len(draws) == 1:
        return [plan(draws[0], images, resample)]
    ends = list(accumulate(len(each.op) for each in draws))
    rows = plan(Draw(*map(np.concatenate, zip(*draws, strict=True))), images, resample)
    return [_rows(rows, slice(*bounds)) for bounds in pairwise([0, *ends])]


def _run(family: Family, images: Tensor, rows: Any, resample: str) -> None:
    everything = slice(0, len(images))
    for part in levels.chunks(images, _WIDE):
        here, drawn = (images, rows) if part == everything else (images[part], _rows(rows, part))
        here.copy_(family.run(here, drawn, resample))


def _rows(rows: Any, part: slice) -> Any:
    return type(rows)(*[each[part] for each in rows])


def caption(op: int, value: float) -> str:
    """Caption an image with an op and its parameter."""
    return CAPTIONS[NAMES[op]].format(value)
