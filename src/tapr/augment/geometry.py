"""Ops that move pixels: rotation, shear and translation, as PIL's affine transform does them.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. What comes from
outside the image is black.
"""

import torch
from torch import Tensor
from torch.nn import functional

from tapr.errors import InputError

_FIXED = 65536.0  # nearest neighbours are found in 16.16 fixed point
_SLACK = 2.0**-7  # levels; more than float32 interpolation loses, so whole results stay whole


def rotate(images: Tensor, degrees: Tensor, resample: str = "nearest") -> Tensor:
    """Turn counter-clockwise around the centre."""
    angle = -torch.deg2rad(degrees.remainder(360))
    cosine, sine = angle.cos().round(decimals=15), angle.sin().round(decimals=15)
    x, y = images.shape[3] / 2, images.shape[2] / 2
    right, down = -cosine * x - sine * y + x, sine * x - cosine * y + y
    matrix = torch.stack([cosine, sine, right, -sine, cosine, down], dim=1)
    return affine(images, matrix, resample)


def shear_x(images: Tensor, slope: Tensor, resample: str = "nearest") -> Tensor:
    """Slide each row left by `slope` times its distance from the top."""
    return affine(images, _matrix(slope, 1), resample)


def shear_y(images: Tensor, slope: Tensor, resample: str = "nearest") -> Tensor:
    """Slide each column up by `slope` times its distance from the left."""
    return affine(images, _matrix(slope, 3), resample)


def translate_x(images: Tensor, pixels: Tensor, resample: str = "nearest") -> Tensor:
    """Slide left by `pixels`."""
    return affine(images, _matrix(_whole(pixels, images, resample), 2), resample)


def translate_y(images: Tensor, pixels: Tensor, resample: str = "nearest") -> Tensor:
    """Slide up by `pixels`."""
    return affine(images, _matrix(_whole(pixels, images, resample), 5), resample)


def _matrix(values: Tensor, place: int) -> Tensor:
    matrix = torch.tensor([1.0, 0, 0, 0, 1, 0], dtype=torch.float64).repeat(len(values), 1)
    matrix[:, place] = values
    return matrix


def _whole(pixels: Tensor, images: Tensor, resample: str) -> Tensor:
    # PIL rounds a pure translation in double precision, before the fixed point arithmetic.
    size = float(max(images.shape[2:]))
    pixels = pixels.clamp(-size, size)
    return (pixels + 0.5).floor_() if resample == "nearest" else pixels


def affine(images: Tensor, matrix: Tensor, resample: str = "nearest") -> Tensor:
    """Take each pixel (x, y) from (a x + b y + c, d x + e y + f); `matrix` is [B, 6] on the CPU."""
    return {"nearest": _nearest, "bilinear": _bilinear}[resample](images, matrix)


def _nearest(images: Tensor, matrix: Tensor) -> Tensor:
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix.unbind(1)
    reach = max(height, width) * (matrix[:, [0, 1, 3, 4]].abs().amax() * 2) + matrix.abs().amax()
    if reach >= 32768:
        raise InputError(f"expected an affine map within 32768 pixels, got {reach.item():g}")
    halves = torch.stack([a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5])
    fixed = (halves * _FIXED + 0.5).floor_().int().to(images.device).view(6, -1, 1, 1)
    a, b, c, d, e, f = fixed.unbind(0)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device).unsqueeze(1)
    column, row = (c + b * y) + a * x >> 16, (f + e * y) + d * x >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = (row * width + column).mul_(inside).long().view(len(images), 1, -1)
    moved = images.flatten(2).gather(2, source.expand(-1, images.shape[1], -1))
    return moved.view(images.shape).mul_(inside.unsqueeze(1))


def _bilinear(images: Tensor, matrix: Tensor) -> Tensor:
    height, width = images.shape[2:]
    a, b, c, d, e, f = matrix.to(images.device).view(-1, 6, 1, 1).unbind(1)
    x = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5
    y = (torch.arange(height, dtype=torch.float64, device=images.device) + 0.5).unsqueeze(1)
    column, row = a * x + b * y + c, d * x + e * y + f
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    grid = torch.stack([column * (2 / width) - 1, row * (2 / height) - 1], dim=-1).float()
    moved = functional.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return moved.add_(_SLACK).byte().mul_(inside.unsqueeze(1))
