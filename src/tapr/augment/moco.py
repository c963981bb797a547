"""The strong augmentation of MoCo v2 without its crop, as AdaContrast takes it for small images."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from tapr.augment import levels
from tapr.augment.base import Augmentation
from tapr.augment.katana import COLOURS

RANGES = {
    "brightness": (0.6, 1.4),
    "contrast": (0.6, 1.4),
    "saturation": (0.6, 1.4),
    "hue": (-0.1, 0.1),
}
JITTERED, GREYED, BLURRED, FLIPPED = 0.8, 0.2, 0.5, 0.5  # how many of the images
SIGMA, REACH = (0.1, 2.0), 6  # the blur reaches three of the largest sigmas far


class MoCoParams(NamedTuple):
    """The draws for each image; `torch.save` takes their `_asdict()`."""

    order: Tensor  # [B, 4] int64, places in `RANGES`
    factor: Tensor  # [B, 4] float64, in the order of `RANGES`
    jitter: Tensor  # [B] bool
    grey: Tensor  # [B] bool
    sigma: Tensor  # [B] float64; 0: no blur
    flip: Tensor  # [B] bool


class MoCo(Augmentation):
    """Colour jitter for most images, grey for some, blur and a flip for half of them.

    >>> MoCo()(torch.rand(4, 3, 32, 32), torch.Generator()).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> MoCoParams:
        """Draw what happens to each image, and how much."""
        count = shape[0]
        drawn = torch.rand(count, 9, generator=generator, dtype=torch.float64)
        low, high = torch.tensor(list(RANGES.values()), dtype=torch.float64).unbind(1)
        blurred = drawn[:, 6] < BLURRED
        sigma = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * drawn[:, 7]
        return MoCoParams(
            order=torch.rand(count, len(RANGES), generator=generator).argsort(1),
            factor=low + (high - low) * drawn[:, :4],
            jitter=drawn[:, 4] < JITTERED,
            grey=drawn[:, 5] < GREYED,
            sigma=torch.where(blurred, sigma, 0),
            flip=drawn[:, 8] < FLIPPED,
        )

    def transform(self, images: Tensor, params: MoCoParams) -> Tensor:
        """Colours in their order, grey, blur, flip."""
        levels.check(images)
        result = torch.empty_like(images)
        with torch.inference_mode():
            for part in levels.chunks(images, levels.WIDE):
                drawn = MoCoParams(*(each[part].to(images.device) for each in params))
                given = images[part]
                bytes_ = given.dtype == torch.uint8
                changed = _changed(given.float() / 255 if bytes_ else given, drawn)
                result[part] = changed.mul(255).round() if bytes_ else changed
        return result


def _changed(images: Tensor, params: MoCoParams) -> Tensor:
    images = images.clone(memory_format=torch.contiguous_format)
    for step in range(len(RANGES)):
        for op, name in enumerate(RANGES):
            chosen = (params.jitter & (params.order[:, step] == op)).nonzero()[:, 0]
            if len(chosen):
                factor = params.factor[chosen, op].to(images).view(-1, 1, 1, 1)
                images[chosen] = COLOURS[name](images[chosen], factor).clamp_(0, 1)
    chosen = params.grey.nonzero()[:, 0]
    if len(chosen):
        images[chosen] = COLOURS["saturation"](images[chosen], images.new_zeros(()))
    chosen = (params.sigma > 0).nonzero()[:, 0]
    if len(chosen):
        images[chosen] = _blurred(images[chosen], params.sigma[chosen])
    flipped = torch.where(params.flip.view(-1, 1, 1, 1), images.flip(3), images)
    return flipped.clamp_(0, 1)


def _blurred(images: Tensor, sigma: Tensor) -> Tensor:
    """A Gaussian with a sigma for each image; the edge goes on outside."""
    offsets = torch.arange(-REACH, REACH + 1, device=images.device)
    weights = (-0.5 * (offsets / sigma[:, None]) ** 2).exp()
    weights = (weights / weights.sum(1, keepdim=True)).to(images)
    for axis, sides in ((2, (0, 0, REACH, REACH)), (3, (REACH, REACH, 0, 0))):
        length = images.shape[axis]
        padded = pad(images, sides, mode="replicate")
        images = weights[:, 0].view(-1, 1, 1, 1) * padded.narrow(axis, 0, length)
        for place in range(1, 2 * REACH + 1):
            tap = weights[:, place].view(-1, 1, 1, 1)
            images = images + tap * padded.narrow(axis, place, length)
    return images
