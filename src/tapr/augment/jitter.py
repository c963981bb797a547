"""Colour, a small turn and a flip: the augmentation of CoTTA, RoTTA, RMT, ROID and CMF."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tapr.augment.base import Augmentation, between
from tapr.errors import InputError

# Factor of each colour operation: from, to.
COLOURS: Mapping[str, tuple[float, float]] = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
}
DEGREES, SHIFT, ZOOM = 15.0, 1 / 8, 0.1  # the shift is a share of the image's side
PADDINGS = {"reflect": "reflection", "edge": "border"}
GREY = (0.2989, 0.587, 0.114)


class JitterParams(NamedTuple):
    """What was drawn for each image."""

    order: Tensor  # [B, 5], places in COLOURS, first to last
    factors: Tensor  # [B, 5], by place in COLOURS
    turn: Tensor  # [B, 4]: degrees, shift right and down as shares of the side, zoom
    flip: Tensor  # [B] bool
    blur: Tensor  # [B], sigma in pixels
    noise: Tensor  # [B, C, H, W], or no noise: [B, 0]


class Jitter(Augmentation):
    """Five colour operations in random order, an affine move, perhaps blur and noise, a flip.

    `strength` scales all ranges. `shared` makes one draw for the whole batch, as the released code
    of all methods that use this augmentation does. `blur` (the largest sigma) and `noise` (standard
    deviation) are 0 for ROID and CMF; `padding` is what lies around an image: "reflect" or "edge".

    >>> Jitter()(torch.zeros(2, 3, 8, 8), torch.Generator()).shape
    torch.Size([2, 3, 8, 8])
    """

    def __init__(
        self,
        *,
        strength: float = 1.0,
        shared: bool = False,
        padding: str = "reflect",
        blur: float = 0.0,
        noise: float = 0.0,
    ) -> None:
        super().__init__()
        self.strength = between("strength", strength, 0, 1)
        self.shared = shared
        if padding not in PADDINGS:
            raise InputError(f"expected padding 'reflect' or 'edge', got {padding!r}")
        self.padding = padding
        self.blur, self.noise = between("blur", blur, 0, 10), between("noise", noise, 0, 1)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> JitterParams:
        """Draw for every image, or once for all; pixel noise is always each image's own."""
        images = shape[0]
        draws = 1 if self.shared else images
        drawn = torch.rand(draws, 16, generator=generator, dtype=torch.float64)
        drawn = drawn.expand(images, 16)
        middle = 2 * drawn - 1  # from -1 to 1
        low, high = (torch.tensor(ends).double() for ends in zip(*COLOURS.values(), strict=True))
        half = (high - low) / 2
        limits = torch.tensor([DEGREES, SHIFT, SHIFT, ZOOM], dtype=torch.float64)
        noise = torch.zeros(images, 0, dtype=torch.float64)
        if self.noise:
            noise = self.noise * torch.randn(*shape, generator=generator, dtype=torch.float64)
        return JitterParams(
            order=drawn[:, :5].argsort(1),
            factors=(low + half) + self.strength * half * middle[:, 5:10],
            turn=self.strength * limits * middle[:, 10:14] + torch.tensor([0.0, 0, 0, 1]),
            flip=drawn[:, 14] < 0.5,
            blur=self.strength * self.blur * drawn[:, 15],
            noise=noise,
        )

    def transform(self, images: Tensor, params: JitterParams) -> Tensor:
        """Colours, then the move, blur, flip and noise; the result stays in [0, 1]."""
        if not images.is_floating_point():
            changed = self.transform(images.float() / 255, params)
            return (changed * 255).round().to(images.dtype)
        changed = _colour(images.clamp(0, 1), params)
        if changed.numel():
            changed = _moved(changed, params.turn.to(changed), PADDINGS[self.padding])
        if self.blur:
            changed = _blurred(changed, params.blur.to(changed))
        flip = params.flip.to(changed.device).view(-1, 1, 1, 1)
        changed = torch.where(flip, changed.flip(3), changed)
        if params.noise.ndim == 4:
            changed = changed + params.noise.to(changed)
        return changed.clamp(0, 1)


def _colour(images: Tensor, params: JitterParams) -> Tensor:
    for places in params.order.unbind(1):
        changed = images.clone()
        for place, name in enumerate(COLOURS):
            chosen = (places == place).nonzero()[:, 0]
            if len(chosen):
                index = chosen.to(images.device)
                factor = params.factors[chosen, place].to(images).view(-1, 1, 1, 1)
                changed[index] = OPERATIONS[name](images[index], factor).clamp(0, 1)
        images = changed
    return images


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images.mean(1, keepdim=True)
    return (images * images.new_tensor(GREY).view(3, 1, 1)).sum(1, keepdim=True)


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    plain = _grey(images).mean((1, 2, 3), keepdim=True)
    return plain + factor * (images - plain)


def _saturation(images: Tensor, factor: Tensor) -> Tensor:
    if images.shape[1] != 3:
        return images
    plain = _grey(images)
    return plain + factor * (images - plain)


def _hue(images: Tensor, turn: Tensor) -> Tensor:
    """Turn the hue by a share of the circle; lightness and saturation stay."""
    if images.shape[1] != 3:
        return images
    high, low = images.amax(1, keepdim=True), images.amin(1, keepdim=True)
    range_ = high - low
    red, green, blue = images.unsqueeze(2).unbind(1)
    safe = range_.where(range_ > 0, torch.ones_like(range_))
    by_blue = (4 + (red - green) / safe).where(high == blue, torch.zeros_like(high))
    by_green = (2 + (blue - red) / safe).where(high == green, by_blue)
    hue = ((green - blue) / safe).where(high == red, by_green) + 6 * turn
    offsets = images.new_tensor([5.0, 3.0, 1.0]).view(3, 1, 1)
    place = (hue + offsets) % 6
    return high - range_ * torch.minimum(place, 4 - place).clamp(0, 1)


def _gamma(images: Tensor, power: Tensor) -> Tensor:
    return images.clamp(min=1e-8) ** power


OPERATIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda images, factor: images * factor,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
    "gamma": _gamma,
}


def _moved(images: Tensor, turn: Tensor, padding: str) -> Tensor:
    """Rotated, zoomed and shifted about the middle; what comes from outside is the padding."""
    height, width = images.shape[2:]
    degrees, right, down, zoom = turn.unbind(1)
    cosine, sine = degrees.deg2rad().cos() / zoom, degrees.deg2rad().sin() / zoom
    rows = torch.arange(height, device=images.device, dtype=images.dtype) - (height - 1) / 2
    columns = torch.arange(width, device=images.device, dtype=images.dtype) - (width - 1) / 2
    y = rows[:, None] - (down * height)[:, None, None]
    x = columns[None] - (right * width)[:, None, None]
    from_x = cosine[:, None, None] * x + sine[:, None, None] * y
    from_y = cosine[:, None, None] * y - sine[:, None, None] * x
    grid = torch.stack([from_x / max((width - 1) / 2, 0.5), from_y / max((height - 1) / 2, 0.5)], 3)
    return functional.grid_sample(images, grid, padding_mode=padding, align_corners=True)


def _blurred(images: Tensor, sigma: Tensor) -> Tensor:
    """Blurred by a Gaussian of five pixels."""
    count, channels = images.shape[:2]
    places = torch.arange(-2.0, 3.0, device=images.device, dtype=images.dtype)
    weights = (-0.5 * (places / sigma[:, None].clamp(min=1e-3)).square()).exp()
    weights = (weights / weights.sum(1, keepdim=True)).repeat_interleave(channels, 0)
    mode = "reflect" if min(images.shape[2:]) > 2 else "replicate"
    wide = functional.pad(images, (2, 2, 2, 2), mode).reshape(
        1, count * channels, *(side + 4 for side in images.shape[2:])
    )
    rows = functional.conv2d(wide, weights[:, None, None, :], groups=count * channels)
    both = functional.conv2d(rows, weights[:, None, :, None], groups=count * channels)
    return both.view_as(images)
