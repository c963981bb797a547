"""Ops that move pixels: rotation, shear and translation, as PIL's affine transform does them.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. An affine matrix row
(a, b, c, d, e, f) takes the pixel (x, y) from (a x + b y + c, d x + e y + f); what comes from
outside the image is black.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

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
    return RESAMPLING[resample](images, MATRICES[name](values, *images.shape[2:]))


def nearest(images: Tensor, matrix: Values, fill: int = 0) -> Tensor:
    """Move the nearest pixel, with PIL's fixed point arithmetic; `matrix` is [6, B]."""
    count, channels, height, width = images.shape
    fixed = _fixed(matrix, max(height, width))
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


def shifted(images: Tensor, matrix: Values, fill: int = 0) -> Tensor:
    """What `nearest` does for translations alone: each image is a piece of itself in a margin."""
    count, channels, height, width = images.shape
    right, down = (
        np.floor(matrix[place] + 0.5).clip(-side, side).astype(np.int64)
        for place, side in ((2, width), (5, height))
    )
    x, y = (int(np.abs(shift).max(initial=0)) for shift in (right, down))
    margin = functional.pad(images, (x, x, y, y), value=fill)
    image, plane, row, pixel = margin.stride()
    pieces = margin.as_strided(
        (count, 2 * y + 1, 2 * x + 1, channels, height, width),
        (image, row, pixel, plane, row, pixel),
    )
    chosen = np.arange(count), down + y, right + x
    if images.device.type == "cpu":  # numpy copies row by row, torch pixel by pixel
        return torch.from_numpy(pieces.numpy()[chosen])
    return pieces[tuple(torch.from_numpy(places).to(images.device) for places in chosen)]


def _fixed(matrix: Values, side: int) -> NDArray[np.int32]:
    """The matrix for whole x and y, whose pixels' middles are half a pixel on, in fixed point."""
    a, b, c, d, e, f = matrix
    still = (b == 0) & (d == 0)
    fixed = matrix.copy()
    for place, middle in ((2, c + a * 0.5 + b * 0.5), (5, f + d * 0.5 + e * 0.5)):
        # PIL rounds a pure translation in double precision, before the fixed point arithmetic.
        fixed[place] = np.where(still, np.floor(middle), middle).clip(-2 * side, 3 * side)
    return np.floor(fixed * _FIXED + 0.5).astype(np.int32)


def bilinear(images: Tensor, matrix: Values, fill: int = 0) -> Tensor:
    """Interpolate between the four nearest pixels; `matrix` is [6, B]."""
    height, width = images.shape[2:]
    along, down, offset = _parts(matrix, height, width, middle=0.5)
    scale = np.array([[[2 / width]], [[2 / height]]], dtype=np.float32)
    across = _pairs(along.astype(np.float32) * scale, images.device)
    below = _pairs((down + offset).astype(np.float32) * scale - 1, images.device)
    grid = torch.view_as_real(across.unsqueeze(1) + below.unsqueeze(2))
    moved = torch.grid_sampler(images.float(), grid, _BILINEAR, _BORDER, align_corners=False)
    inside = _inside(matrix, down, width, images.device)
    result = moved.add_(_SLACK).short().byte().mul_(inside)
    return result.add_(inside.bitwise_xor_(1), alpha=fill) if fill else result


def _pairs(places: NDArray[np.float32], device: torch.device) -> Tensor:
    """Columns and rows, [2, B, N], as complex numbers, [B, N]: they are added at once."""
    both = torch.from_numpy(places).to(device)
    return torch.complex(both[0], both[1])


def _inside(matrix: Values, down: Values, width: int, device: torch.device) -> Tensor:
    """1 for each pixel, [B, 1, H, W], whose source is in the image, and 0 for the others.

    It is where 0 <= place < size, the place being rounded as PIL rounds it. Along a row places grow
    or fall, so that two columns say it all: those where a place passes its bounds. A division
    estimates them, and the place there tells which of two neighbours it is.
    """
    count, height = down.shape[1:]
    slope, _, offset = matrix.reshape(2, 3, -1, 1).swapaxes(0, 1)
    sign = np.where(slope < 0, -1.0, 1.0)  # places that fall are negated, and grow
    slope, down, offset = sign * slope, sign * down, sign * offset
    # Where they are inside, and where they no longer are: [2, 2, B, 1].
    growing = np.array([[0, 0], [width, height]], dtype=np.float64)
    falling = -np.nextafter(growing[::-1], -1)
    bounds = np.where(sign < 0, falling[..., None, None], growing[..., None, None])
    column = bounds - (down + offset)
    column /= np.maximum(slope, _FLAT)
    column -= 0.5
    np.rint(column, out=column)
    place = (column + 0.5) * slope
    place += down
    place += offset
    column += place < bounds
    first, end = np.maximum(*column[0]), np.minimum(*column[1])
    upto, short = (
        _before(width).to(device).index_select(0, torch.from_numpy(places).to(device))
        for places in (_column(end, width), _column(np.minimum(first, end), width))
    )
    return upto.sub_(short).view(count, 1, height, width)


def _column(places: Values, width: int) -> NDArray[np.int32]:
    return np.minimum(np.maximum(places, 0), width).ravel().astype(np.int32)


@lru_cache(maxsize=2)
def _before(width: int) -> Tensor:
    """Row n has n ones, and then zeros."""
    return torch.from_numpy(np.tri(width + 1, width, -1, dtype=np.uint8))


def _parts(
    matrix: NDArray[Number], height: int, width: int, middle: float = 0
) -> tuple[NDArray[Number], NDArray[Number], NDArray[Number]]:
    """What x, [2, B, W], y, [2, B, H], and the offset, [2, B, 1], add to each place."""
    rows = matrix.reshape(2, 3, -1, 1)
    x = np.arange(width, dtype=matrix.dtype) + matrix.dtype.type(middle)
    y = np.arange(height, dtype=matrix.dtype) + matrix.dtype.type(middle)
    return rows[:, 0] * x, rows[:, 1] * y, rows[:, 2]


GREY = 128
RESAMPLING: Registry[Callable[[Tensor, Values], Tensor]] = Registry(
    "resampling",
    {
        "nearest": nearest,
        "bilinear": bilinear,
        "nearest-grey": partial(nearest, fill=GREY),  # what comes from outside is grey
        "bilinear-grey": partial(bilinear, fill=GREY),
    },
)
