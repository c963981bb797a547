"""The augmentation of CoTTA: colours, a small turn, blur, flip and noise, each drawn per image.

Cohen & Giryes 2021 (KATANA), as CoTTA, RoTTA, RMT, ROID and others take it.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from tapr.augment import levels
from tapr.augment.base import Augmentation
from tapr.registry import Registry

RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.7, 1.3),
    "saturation": (0.5, 1.5),
    "hue": (-0.06, 0.06),
    "gamma": (0.7, 1.3),
}
DEGREES, SHIFT, SCALE = 15.0, 1 / 16, (0.9, 1.1)  # the shift in sides of the padded image
SIGMA, NOISE, REACH = (0.001, 0.5), 0.005, 2  # the blur reaches two pixels far
_LUMA = (0.2989, 0.587, 0.114)
PADDINGS = Registry("padding", {"edge": "border", "reflect": "reflection"})


class KatanaParams(NamedTuple):
    """The draws for each image; `torch.save` takes their `_asdict()`."""

    order: Tensor  # [B, 5] int64, places in `RANGES`
    factor: Tensor  # [B, 5] float64, one for each colour op, in the order of `RANGES`
    degrees: Tensor  # [B] float64
    shift: Tensor  # [B, 2] float64, in whole pixels, to the right and down
    scale: Tensor  # [B] float64
    sigma: Tensor  # [B] float64, of the blur; 0 without one
    flip: Tensor  # [B] bool
    noise: Tensor  # [B, C, H, W] float32


class Katana(Augmentation):
    """Changes colours, turns, shifts, scales, blurs and flips every image a little, and adds noise.

    With `batchwide` all images of a batch share one draw of everything but the noise, as in the
    released code of CoTTA and its followers. ROID pads by `reflect` and leaves `blur` and `noise`
    out.

    >>> generator = torch.Generator().manual_seed(0)
    >>> Katana()(torch.rand(4, 3, 32, 32, generator=generator), generator).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def __init__(
        self,
        batchwide: bool = False,
        padding: str = "edge",
        blur: bool = True,
        noise: bool = True,
    ) -> None:
        super().__init__()
        self.batchwide, self.padding, self.blur, self.noise = batchwide, padding, blur, noise
        self._outside = PADDINGS[padding]

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> KatanaParams:
        """Draw the colours, the turn, the blur, the flip and the noise."""
        draws = min(1, shape[0]) if self.batchwide else shape[0]

        def uniform(low: float, high: float, *size: int) -> Tensor:
            drawn = torch.rand(draws, *size, generator=generator, dtype=torch.float64)
            return low + (high - low) * drawn

        order = torch.rand(draws, len(RANGES), generator=generator).argsort(1)
        factor = [uniform(*bounds) for bounds in RANGES.values()]
        sides = torch.tensor([_padded(side) for side in (shape[3], shape[2])])
        drawn: tuple[Tensor, ...] = (
            order,
            torch.stack(factor, 1),
            uniform(-DEGREES, DEGREES),
            (uniform(-SHIFT, SHIFT, 2) * sides).round(),
            uniform(*SCALE),
            uniform(*SIGMA) * self.blur,
            uniform(0, 1) < 0.5,
        )
        noise = torch.zeros(tuple(shape))
        if self.noise:
            noise = NOISE * torch.randn(tuple(shape), generator=generator)
        if draws:
            drawn = tuple(part.expand(shape[0], *part.shape[1:]).clone() for part in drawn)
        return KatanaParams._make((*drawn, noise))

    def transform(self, images: Tensor, params: KatanaParams) -> Tensor:
        """Colours in their order, then the turn, blur, flip and noise."""
        levels.check(images)
        result = torch.empty_like(images)
        with torch.inference_mode():
            for part in levels.chunks(images, levels.WIDE):
                drawn = KatanaParams(*(each[part].to(images.device) for each in params))
                given = images[part]
                bytes_ = given.dtype == torch.uint8
                changed = self._changed(given.float() / 255 if bytes_ else given, drawn)
                result[part] = changed.mul(255).round() if bytes_ else changed
        return result

    def _changed(self, images: Tensor, params: KatanaParams) -> Tensor:
        changed = _coloured(images.contiguous(), params)
        changed = _moved(changed, params, self._outside)
        if self.blur:
            changed = _blurred(changed, params.sigma)
        changed = changed[:, :, REACH:-REACH, REACH:-REACH]
        changed = torch.where(params.flip.view(-1, 1, 1, 1), changed.flip(3), changed)
        return (changed + params.noise.to(changed)).clamp(0, 1)

    def describe(self, params: KatanaParams) -> list[str]:
        """Caption each image with its draws."""
        captions = []
        for place in range(len(params.flip)):
            lines = [
                f"{tuple(RANGES)[op]} {params.factor[place, op]:.2f}" for op in params.order[place]
            ]
            right, down = params.shift[place].tolist()
            lines.append(f"rotate {params.degrees[place]:+.3g}°, scale {params.scale[place]:.2f}")
            lines.append(f"shift {right:+.0f}, {down:+.0f} px")
            captions.append("\n".join([*lines, "flip"] if params.flip[place] else lines))
        return captions

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        names = ("batchwide", "padding", "blur", "noise")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


def _padded(side: int) -> int:
    """The side after padding by half of it on both ends."""
    return side + 2 * (side // 2)


def _coloured(images: Tensor, params: KatanaParams) -> Tensor:
    """Each image through the five colour ops in its own order: images of one op run together."""
    images = images.clone()
    for step in range(len(RANGES)):
        for op, name in enumerate(RANGES):
            chosen = (params.order[:, step] == op).nonzero()[:, 0]
            if len(chosen):
                factor = params.factor[chosen, op].to(images).view(-1, 1, 1, 1)
                images[chosen] = COLOURS[name](images[chosen], factor).clamp_(0, 1)
    return images


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    mean = _grey(images).double().mean((1, 2, 3), keepdim=True).to(images)
    return factor * images + (1 - factor) * mean


def _saturation(images: Tensor, factor: Tensor) -> Tensor:
    return factor * images + (1 - factor) * _grey(images)


def _grey(images: Tensor) -> Tensor:
    if images.shape[1] == 1:
        return images
    red, green, blue = images.unbind(1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue).unsqueeze(1)


def _hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue, by way of hue, saturation and value."""
    if images.shape[1] == 1:
        return images
    value, low = images.amax(1), images.amin(1)
    spread = value - low
    red, green, blue = images.unbind(1)
    safe = torch.where(spread == 0, 1, spread)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    hue = (torch.where(spread == 0, 0, sixth) / 6 + turns.view(-1, 1, 1)).remainder(1.0)
    # A channel falls from the value by its share of the spread: Foley and van Dam, in one line.
    place = (hue.unsqueeze(1) * 6 + hue.new_tensor([5.0, 3.0, 1.0]).view(1, 3, 1, 1)).remainder(6)
    fall = torch.minimum(place, 4 - place).clamp_(0, 1)
    return value.unsqueeze(1) - spread.unsqueeze(1) * fall


COLOURS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "brightness": lambda images, factor: images * factor,
    "contrast": _contrast,
    "saturation": _saturation,
    "hue": _hue,
    "gamma": lambda images, factor: images.clamp(1e-8, 1) ** factor,
}


def _moved(images: Tensor, params: KatanaParams, outside: str) -> Tensor:
    """Turned, scaled and shifted about the centre, with a margin for the blur on every side.

    A sampling that knows what lies outside the image takes the place of the padding: no drawn
    transform reaches beyond half a side.
    """
    height, width = images.shape[2:]
    angle = params.degrees.deg2rad()
    cosine, sine = angle.cos() / params.scale, angle.sin() / params.scale
    across = torch.arange(-REACH, width + REACH, device=images.device) - (width - 1) / 2
    down = torch.arange(-REACH, height + REACH, device=images.device) - (height - 1) / 2
    x = across.double()[None, None, :] - params.shift[:, 0].view(-1, 1, 1)
    y = down.double()[None, :, None] - params.shift[:, 1].view(-1, 1, 1)
    cosine, sine = cosine.view(-1, 1, 1), sine.view(-1, 1, 1)
    column = cosine * x + sine * y + (width - 1) / 2
    row = -sine * x + cosine * y + (height - 1) / 2
    middles = outside == "reflection"  # mirrored at the middle of the last pixel, as `pad` does
    ends = [max(side - 1, 1) if middles else side for side in (width, height)]
    offset = 0.0 if middles else 0.5
    grid = [2 * (at + offset) / end - 1 for at, end in zip((column, row), ends, strict=True)]
    where = torch.stack(grid, -1).to(images)
    return grid_sample(images, where, padding_mode=outside, align_corners=middles)


def _blurred(images: Tensor, sigma: Tensor) -> Tensor:
    """A Gaussian of five by five, a sigma for each image; the margin is not blurred."""
    offsets = torch.arange(-REACH, REACH + 1, device=images.device)
    weights = (-0.5 * (offsets / sigma[:, None]) ** 2).exp()
    weights = (weights / weights.sum(1, keepdim=True)).to(images)
    for axis in (2, 3):
        length = images.shape[axis] - 2 * REACH
        taps = [
            weights[:, place].view(-1, 1, 1, 1) * images.narrow(axis, place, length)
            for place in range(2 * REACH + 1)
        ]
        images = reduce(torch.add, taps)
    return pad(images, (REACH,) * 4)
