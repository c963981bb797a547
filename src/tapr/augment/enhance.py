"""Ops that blend an image with a plainer version of itself, and the box that hides a part of it.

Functions of uint8 images [B, C, H, W]; parameters are one float64 per image. The arithmetic is
PIL's: float32 in the same order, truncated.
"""

import torch
from torch import Tensor

_BOX = (125, 123, 114)  # the colour of the released code's cutout
_BOX_GREY = 122  # the same in grey


def color(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey image: 0 is grey, 1 the image, above 1 more colourful."""
    if images.shape[1] == 1:
        return images.clone()
    return blend(grey(images), images, _pixelwise(factor, images)).byte()


def sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Blend with the smoothed image: 0 is smooth, 1 the image, above 1 sharper."""
    return blend(_smooth(images), images, _pixelwise(factor, images)).byte()


def cutout(images: Tensor, side: Tensor, centre: Tensor) -> Tensor:
    """Hide a square of `side` pixels around `centre` [B, 2], x and y in [0, 1], with grey."""
    height, width = images.shape[2:]
    columns = _between(side, centre[:, 0], width, images.device).unsqueeze(1)
    rows = _between(side, centre[:, 1], height, images.device).unsqueeze(2)
    paint = torch.tensor(_BOX if images.shape[1] == 3 else (_BOX_GREY,), dtype=torch.uint8)
    hidden = (rows & columns).unsqueeze(1)
    return torch.where(hidden, paint.to(images.device).view(1, -1, 1, 1), images)


def _between(side: Tensor, centre: Tensor, size: int, device: torch.device) -> Tensor:
    """Which of `size` places the square covers, [B, size]; the released code drew both ends."""
    first = (centre * size - side / 2).clamp_(min=0).floor_()
    last = (first + side).clamp_(max=size).floor_()
    places = torch.arange(size, device=device)
    first, last = first.to(device).unsqueeze(1), last.to(device).unsqueeze(1)
    return (places >= first) & (places <= last)


def blend(plain: Tensor, full: Tensor, factor: Tensor) -> Tensor:
    """`plain` + `factor` (`full` - `plain`) in float32, kept in 0..255."""
    return (full.float() - plain.float()).mul(factor.float()).add(plain.float()).clamp_(0, 255)


def grey(images: Tensor) -> Tensor:
    """The luma of RGB images as whole levels in float32, [B, 1, H, W]."""
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = images.float().unsqueeze(1).unbind(2)
    # 16-bit fixed point weights; every sum stays below 2^24 and so exact in float32.
    weighted: Tensor = (red * 19595).add_(green, alpha=38470).add_(blue, alpha=7471)
    return weighted.add_(0x8000).mul_(2.0**-16).floor_()


def _smooth(images: Tensor) -> Tensor:
    """The 3 x 3 mean with five times the weight in the middle; the border is left as it is."""
    smooth = images.float()
    if min(images.shape[2:]) < 3:
        return smooth
    inner = smooth[:, :, 1:-1, 1:-1]
    rows = smooth[:, :, :-2] + smooth[:, :, 1:-1] + smooth[:, :, 2:]
    total = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * inner
    inner.copy_(total.add_(6.5).mul_(1 / 13).floor_())
    return smooth


def _pixelwise(values: Tensor, images: Tensor) -> Tensor:
    return values.to(images.device).view(-1, 1, 1, 1)
