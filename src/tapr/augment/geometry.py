"""Ops that move pixels: rotation, shear and translation, as PIL's affine transform does them.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. An affine matrix row
(a, b, c, d, e, f) takes the pixel (x, y) from (a x + b y + c, d x + e y + f); what comes from
outside the image is black.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.augment.levels import Values
from tapr.registry import Registry

_FIXED = 65536.0  # nearest neighbours are found in 16.16 fixed point
_SLACK = 2.0**-7  # levels; more than float32 interpolation loses, so whole results stay whole

_FLAT = 1e-200  # stands for a slope of 0
_BILINEAR, _BORDER = 0, 1  # the numbers that `grid_sampler` knows them by

Number = TypeVar("Number", np.int32, np.float64)
Matrix = Callable[[Values, int, int], Values]


def _rotation(degrees: Values, height: int, width: int) -> Values:
    angle = -np.deg2rad(degrees % 360)
    cosine, sine = np.cos(angle).round(15), np.sin(angle).round(15)
    x, y = width / 2, height / 2
    right, down = -cosine * x - sine * y + x, sine * x - cosine * y + y
    return np.stack([cosine, sine, right, -sine, cosine, down])


def _only(place: int) -> Matrix:
    def matrix(values: Values, height: int, width: int) -> Values:
        rows = np.zeros((6, len(values)))
        rows[0] = rows[4] = 1
        rows[place] = values
        return rows

    return matrix


# From one parameter per image to the matrices [6, B] for its height and width.
MATRICES: Mapping[str, Matrix] = {
    "rotate": _rotation,
    "shear_x": _only(1),
    "shear_y": _only(3),
    "translate_x": _only(2),
    "translate_y": _only(5),
}


def rotate(images: Tensor, degrees: Values, resample: str = "nearest") -> Tensor:
    """Turn counter-clockwise around the centre."""
    return _move("rotate", images, degrees, resample)


def shear_x(images: Tensor, slope: Values, resample: str = "nearest") -> Tensor:
    """Slide each row left by `slope` times its distance from the top."""
    return _move("shear_x", images, slope, resample)


def shear_y(images: Tensor, slope: Values, resample: str = "nearest") -> Tensor:
    """Slide each column up by `slope` times its distance from the left."""
    return _move("shear_y", images, slope, resample)


def translate_x(images: Tensor, pixels: Values, resample: str = "nearest") -> Tensor:
    """Slide left by `pixels`."""
    return _move("translate_x", images, pixels, resample)


def translate_y(images: Tensor, pixels: Values, resample: str = "nearest") -> Tensor:
    """Slide up by `pixels`."""
    return _move("translate_y", images, pixels, resample)


def _move(name: str, images: Tensor, values: Values, resample: str) -> Tensor:
    plan, run = RESAMPLING[resample]
    return run(images, plan(MATRICES[name](values, *images.shape[2:]), images))


class Fixed(NamedTuple):
    """Matrices for whole x and y, whose pixels' middles are half a pixel on, in fixed point."""

    rows: NDArray[np.int32]  # [B, 6]


def _nearest(images: Tensor, matrix: Fixed, fill: int = 0) -> Tensor:
    """Move the nearest pixel, with PIL's fixed point arithmetic."""
    count, channels, height, width = images.shape
    fixed = matrix.rows.T
    x, y, offset = _parts(fixed, height, width)
    along, down = (
        torch.from_numpy(part).to(images.device)
        for part in (x[:, :, None], (y + offset)[..., None])
    )
    # A column that does not depend on y is found once for all rows, and a row likewise.
    column = along[0] + (down[0] if fixed[1].any() else down[0, :, :1])
    row = down[1] + (along[1] if fixed[3].any() else along[1, :, :, :1])
    column = column.bitwise_right_shift_(16).clamp_(-1, width)
    row = row.bitwise_right_shift_(16).clamp_(-1, height)
    # A frame stands for everything outside: cheaper than comparing every place.
    framed = images.new_full((count, channels, height + 2, width + 2), fill)
    framed[:, :, 1:-1, 1:-1] = images
    area = (height + 2) * (width + 2)
    first = torch.arange(width + 3, count * channels * area, area, dtype=torch.int32)
    source = torch.add(column, row, alpha=width + 2).view(count, 1, -1)
    places = source + first.to(images.device).view(count, channels, 1)
    return framed.flatten().index_select(0, places.flatten()).view(images.shape)


class Shifts(NamedTuple):
    """By how many whole pixels translations move images to the left, and up."""

    right: NDArray[np.int64]  # [B]
    down: NDArray[np.int64]  # [B]


def shifts(matrix: Values, images: Tensor) -> Shifts:
    """What translations do to images of this size."""
    height, width = images.shape[2:]
    sides = (matrix[2], width), (matrix[5], height)
    return Shifts(*(np.floor(far + 0.5).clip(-side, side).astype(np.int64) for far, side in sides))


def shifted(images: Tensor, by: Shifts, fill: int = 0) -> Tensor:
    """What "nearest" does for translations alone: each image is a piece of itself in a margin."""
    count, channels, height, width = images.shape
    x, y = (int(np.abs(shift).max(initial=0)) for shift in by)
    margin = torch.constant_pad_nd(images, (x, x, y, y), fill)
    image, plane, row, pixel = margin.stride()
    pieces = margin.as_strided(
        (count, 2 * y + 1, 2 * x + 1, channels, height, width),
        (image, row, pixel, plane, row, pixel),
    )
    chosen = np.arange(count), by.down + y, by.right + x
    if images.device.type == "cpu":  # numpy copies row by row, torch pixel by pixel
        return torch.from_numpy(pieces.numpy()[chosen])
    return pieces[tuple(torch.from_numpy(places).to(images.device) for places in chosen)]


def _fixed(matrix: Values, images: Tensor) -> Fixed:
    side = max(images.shape[2:])
    a, b, c, d, e, f = matrix
    still = (b == 0) & (d == 0)
    fixed = matrix.copy()
    for place, middle in ((2, c + a * 0.5 + b * 0.5), (5, f + d * 0.5 + e * 0.5)):
        # PIL rounds a pure translation in double precision, before the fixed point arithmetic.
        fixed[place] = np.where(still, np.floor(middle), middle).clip(-2 * side, 3 * side)
    return Fixed(np.floor(fixed * _FIXED + 0.5).astype(np.int32).T)


class Places(NamedTuple):
    """Where pixels come from, as columns + i rows in the units of `grid_sampler`."""

    across: Tensor  # [B, W], what a pixel's column adds
    below: Tensor  # [B, H], what its row adds
    end: Tensor  # [B, H], the column from which on a row's sources are outside the image
    first: Tensor  # [B, H], the column from which on they are inside


def _places(matrix: Values, images: Tensor) -> Places:
    height, width = images.shape[2:]
    along, down, offset = _parts(matrix, height, width, middle=0.5)
    scale = np.array([[[2 / width]], [[2 / height]]], dtype=np.float32)
    across, below = along.astype(np.float32) * scale, (down + offset).astype(np.float32) * scale - 1
    ends = _inside(matrix, down, width)
    rows = _pairs(across), _pairs(below), ends[0], ends[1]
    return Places(*(torch.from_numpy(each).to(images.device) for each in rows))


def _pairs(places: NDArray[np.float32]) -> NDArray[np.complex64]:
    """Columns and rows, [2, B, N], as complex numbers, [B, N]: they are added at once."""
    both = np.empty(places.shape[1:], dtype=np.complex64)
    both.real, both.imag = places
    return both


def _bilinear(images: Tensor, places: Places, fill: int = 0) -> Tensor:
    """Interpolate between the four nearest pixels; int16."""
    count, _, height, width = images.shape
    grid = torch.view_as_real(places.across.unsqueeze(1) + places.below.unsqueeze(2))
    moved = torch.grid_sampler(images.float(), grid, _BILINEAR, _BORDER, align_corners=False)
    before = _before(width).to(images.device)
    inside = before.index_select(0, places.end.flatten())
    inside = inside.sub_(before.index_select(0, places.first.flatten()))
    inside = inside.view(count, 1, height, width)
    result = moved.add_(_SLACK).short().mul_(inside)
    return result.add_(inside.bitwise_xor_(1), alpha=fill) if fill else result


def _inside(matrix: Values, down: Values, width: int) -> NDArray[np.int32]:
    """The columns where pixels of each row end, and start, whose sources are inside: [2, B, H].

    A source is inside where 0 <= place < size, the place being rounded as PIL rounds it. Along a
    row places grow or fall, so that two columns say it all: those where a place passes its bounds.
    A division estimates them, and the place there tells which of two neighbours it is.
    """
    slope, _, offset = matrix.reshape(2, 3, -1, 1).swapaxes(0, 1)
    bounds = np.array([0.0, 0.0, width, down.shape[2]]).reshape(2, 2, 1, 1)
    slope = np.where(np.abs(slope) < _FLAT, _FLAT, slope)
    column = bounds - (down + offset)
    column /= slope
    column -= 0.5
    np.rint(column, out=column)
    place = (column + 0.5) * slope
    place += down
    place += offset
    column += (place < bounds) != (slope < 0)
    end, first = np.minimum(*np.maximum(*column)), np.maximum(*np.minimum(*column))
    ends: Values = np.array([end, np.minimum(first, end)])
    return np.minimum(np.maximum(ends, 0), width).astype(np.int32)


@lru_cache(maxsize=2)
def _before(width: int) -> Tensor:
    """Row n has n ones, and then zeros."""
    return torch.from_numpy(np.tri(width + 1, width, -1, dtype=np.int16))


def _parts(
    matrix: NDArray[Number], height: int, width: int, middle: float = 0
) -> tuple[NDArray[Number], NDArray[Number], NDArray[Number]]:
    """What x, [2, B, W], y, [2, B, H], and the offset, [2, B, 1], add to each place."""
    rows = matrix.reshape(2, 3, -1, 1)
    x = np.arange(width, dtype=matrix.dtype) + matrix.dtype.type(middle)
    y = np.arange(height, dtype=matrix.dtype) + matrix.dtype.type(middle)
    return rows[:, 0] * x, rows[:, 1] * y, rows[:, 2]


class Resampling(NamedTuple):
    """How pixels are moved: a plan, in which the pixels have no part, and its execution."""

    plan: Callable[[Values, Tensor], Any]  # of matrices [6, B], for images of such a size; rows
    run: Callable[[Tensor, Any], Tensor]  # of images, and the rows of the plan for them


GREY = 128
RESAMPLING: Registry[Resampling] = Registry(
    "resampling",
    {
        "nearest": Resampling(_fixed, _nearest),
        "bilinear": Resampling(_places, _bilinear),
        # What comes from outside is grey.
        "nearest-grey": Resampling(_fixed, partial(_nearest, fill=GREY)),
        "bilinear-grey": Resampling(_places, partial(_bilinear, fill=GREY)),
    },
)
