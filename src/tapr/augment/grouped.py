"""One op per image over a whole batch: images are grouped by op, each op runs once per group."""

from collections.abc import Callable, Iterator, Sequence
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


Plan = Callable[[Draw, Tensor, str], Any]  # draws of all steps, images of their size, resampling
Run = Callable[[Tensor, Any, str], Tensor]  # levels, sorted by op; rows of the plan; resampling


def _drawn(draw: Draw, images: Tensor, resample: str) -> Draw:
    return draw


def _cutout(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return enhance.cutout(images, draw.value, draw.centre)


def _enhanced(images: Tensor, draw: Draw, resample: str) -> Tensor:
    counts = np.bincount(draw.op, minlength=len(NAMES))[_ENHANCEMENTS].tolist()
    return enhance.enhanced(images, draw.value, counts)


def _looked_up(images: Tensor, draw: Draw, resample: str) -> Tensor:
    return tone.looked_up(images, int((draw.op == EQUALIZE).sum()))


def _tones(draw: Draw, images: Tensor, resample: str) -> tone.Tones:
    numbers = np.empty((len(draw.op), 3), dtype=np.int16)
    for name, chosen in _ops(draw):
        numbers[chosen] = tone.NUMBERS[name](draw.value[chosen])
    return tone.Tones(numbers)


def _toned(images: Tensor, tones: tone.Tones, resample: str) -> Tensor:
    return tone.toned(images, tones)


def _places(draw: Draw, images: Tensor, resample: str) -> Any:
    return geometry.RESAMPLING[resample].plan(_matrices(draw, images), images)


def _moved(images: Tensor, rows: Any, resample: str) -> Tensor:
    return geometry.RESAMPLING[resample].run(images, rows)


def _shifts(draw: Draw, images: Tensor, resample: str) -> geometry.Shifts:
    return geometry.shifts(_matrices(draw, images), images)


def _shifted(images: Tensor, by: geometry.Shifts, resample: str) -> Tensor:
    """AugMix, which interpolates, shifts by whole pixels: there is nothing to interpolate."""
    return geometry.shifted(images, by, geometry.GREY if resample.endswith("-grey") else 0)


def _matrices(draw: Draw, images: Tensor) -> Values:
    size, matrices = images.shape[2:], np.empty((6, len(draw.op)))
    for name, chosen in _ops(draw):
        matrices[:, chosen] = geometry.MATRICES[name](draw.value[chosen], *size)
    return matrices


def _ops(draw: Draw) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The names of the ops, and whose they are."""
    return ((NAMES[op], draw.op == op) for op in set(draw.op.tolist()))


class Family(NamedTuple):
    """Ops that run together, in the order in which they stand here, and the caption of each."""

    captions: dict[str, str]
    run: Run
    plan: Plan = _drawn  # made of the draws of all steps at once, since calls are dear


FAMILIES: Sequence[Family] = (
    Family(
        {
            "invert": "invert",
            "solarize": "solarize from {:.0f}",
            "solarize_add": "solarize add {:.0f}",
            "posterize": "posterize {:.0f}-bit",
        },
        _toned,
        _tones,
    ),
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
# Draws are sorted by family, and within it as it wants them; bytes are sorted fastest.
_RANK = np.array([list(CAPTIONS).index(name) for name in NAMES], dtype=np.uint8)
_FAMILY = np.repeat(
    np.arange(len(FAMILIES) + 1, dtype=np.uint8), [1, *(len(each.captions) for each in FAMILIES)]
)  # of each rank; 0 is the identity's
_SHIFTED = np.array([name.startswith("translate") for name in CAPTIONS])  # by rank


class Group(NamedTuple):
    """Images next to each other on which a family runs, and the rows of its plan for them."""

    part: slice
    family: Family
    rows: Any


def apply(images: Tensor, draw: Draw, resample: str, copies: int = 1) -> Tensor:
    """Run on each of the levels [B, C, H, W] the ops drawn for it, n in a row.

    With `copies` there are so many draws, next to each other, and so many results for each image.
    """
    rank = _RANK[draw.op.T]  # [n, B]
    rank[(draw.value.T == 0) & _SHIFTED[rank]] = 0  # AugMix draws many shifts by nothing
    order = rank.argsort(axis=1, kind="stable")  # whose draw stands where
    where = np.empty_like(order)  # where each draw stands
    where[np.arange(len(order))[:, None], order] = np.arange(order.shape[1])
    sources = np.array([order[0] // copies, *map(np.take, where, order[1:]), where[-1]])
    *moves, back = torch.from_numpy(sources).to(images.device).unbind()
    steps = _groups(images, draw, _FAMILY[np.sort(rank, axis=1)], order, resample)
    for move, groups in zip(moves, steps, strict=True):
        images = images.index_select(0, move)
        for part, family, rows in groups:
            here = images[part]
            here.copy_(family.run(here, rows, resample))
    return images.index_select(0, back)


def _groups(
    images: Tensor,
    draw: Draw,
    family: NDArray[np.uint8],  # [n, B], in the order of each step
    order: NDArray[np.int64],
    resample: str,
) -> list[list[Group]]:
    """The groups of each step. A family plans for all steps at once, since calls are dear."""
    count, steps = draw.op.shape
    places = (order * steps + np.arange(steps)[:, None]).ravel()
    places = places[family.ravel().argsort(kind="stable")]  # by family, and in it by step
    drawn = Draw(*(part.reshape(count * steps, *part.shape[2:])[places] for part in draw))
    starts = [each.searchsorted(range(len(FAMILIES) + 2)).tolist() for each in family]
    most = levels.fitting(images, _WIDE)
    groups: list[list[Group]] = [[] for _ in range(steps)]
    end = sum(each[1] for each in starts)
    for number, each in enumerate(FAMILIES, start=1):
        bounds = [tuple(step[number : number + 2]) for step in starts]
        first, end = end, end + sum(stop - start for start, stop in bounds)
        if first == end:
            continue
        rows, done = each.plan(_rows(drawn, slice(first, end)), images, resample), 0
        for step, (start, stop) in zip(groups, bounds, strict=True):
            for part in levels.pieces(start, stop, most):
                planned = slice(done, done := done + part.stop - part.start)
                step.append(Group(part, each, _rows(rows, planned)))
    return groups


def _rows(rows: Any, part: slice) -> Any:
    return type(rows)(*[each[part] for each in rows])


def caption(op: int, value: float) -> str:
    """Caption an image with an op and its parameter."""
    return CAPTIONS[NAMES[op]].format(value)
