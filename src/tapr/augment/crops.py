"""Crops with a flip, each drawn per image, and augmentations one after another."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from tapr.augment import levels
from tapr.augment.base import Augmentation, whole

TRIES = 10  # for a box that fits into the image; if none does, the middle is taken


class CropParams(NamedTuple):
    """The draws of a crop for each image; `torch.save` takes their `_asdict()`."""

    box: Tensor  # [B, 4] float64: left, top, width, height, in pixels
    flip: Tensor  # [B] bool


class Crop(Augmentation):
    """Shifts every image by up to `padding` pixels each way, black outside, and flips half of them.

    >>> Crop()(torch.rand(4, 3, 32, 32), torch.Generator()).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def __init__(self, padding: int = 4) -> None:
        super().__init__()
        self.padding = whole("padding", padding, 0, 1000)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> CropParams:
        """Draw where the box lies, and whether the image is flipped."""
        place = torch.randint(2 * self.padding + 1, (shape[0], 2), generator=generator)
        size = torch.tensor([shape[3], shape[2]]).expand(shape[0], 2)
        box = torch.cat([place - self.padding, size], 1).double()
        return CropParams(box, torch.rand(shape[0], generator=generator) < 0.5)

    def transform(self, images: Tensor, params: CropParams) -> Tensor:
        """Cut the boxes out."""
        levels.check(images)
        result = torch.empty_like(images, memory_format=torch.contiguous_format)
        for part in levels.chunks(images, levels.WIDE):
            result[part] = self._cut(images[part], CropParams(*(each[part] for each in params)))
        return result

    def _cut(self, images: Tensor, params: CropParams) -> Tensor:
        height, width = images.shape[2:]
        padded = pad(images, (self.padding,) * 4)
        left, top = (params.box[:, :2] + self.padding).long().to(images.device).unbind(1)
        rows = top[:, None] + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device).expand(len(images), width)
        flip = params.flip.to(images.device)[:, None]
        columns = left[:, None] + torch.where(flip, width - 1 - columns, columns)
        number = torch.arange(len(images), device=images.device).view(-1, 1, 1)
        cut = padded.permute(0, 2, 3, 1)[number, rows[:, :, None], columns[:, None, :]]
        return cut.permute(0, 3, 1, 2)

    def extra_repr(self) -> str:
        """The argument that `repr` shows."""
        return f"padding={self.padding}"


class ResizedCrop(Augmentation):
    """Enlarges a random box of every image to the whole, and flips half of them.

    The box has a share of the area in `area` and a ratio of its sides in `ratio`.

    >>> ResizedCrop()(torch.rand(4, 3, 32, 32), torch.Generator()).shape
    torch.Size([4, 3, 32, 32])
    """

    by_image = True

    def __init__(
        self, area: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3)
    ) -> None:
        super().__init__()
        self.area, self.ratio = area, ratio

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> CropParams:
        """Draw a box, the first of ten that fits."""
        drawn = torch.rand(shape[0], TRIES, 4, generator=generator, dtype=torch.float64)
        height, width = shape[2:]
        area = height * width * (self.area[0] + (self.area[1] - self.area[0]) * drawn[..., 0])
        low, high = (torch.tensor(bound, dtype=torch.float64).log() for bound in self.ratio)
        ratio = (low + (high - low) * drawn[..., 1]).exp()
        wide, high_ = ((area * part).sqrt().round() for part in (ratio, 1 / ratio))
        fits = (wide >= 1) & (wide <= width) & (high_ >= 1) & (high_ <= height)
        left = (drawn[..., 2] * (width - wide + 1)).floor()
        top = (drawn[..., 3] * (height - high_ + 1)).floor()
        boxes = torch.stack([left, top, wide, high_], -1)
        first = fits.int().argmax(1)
        box = boxes[torch.arange(shape[0]), first]
        whole_image = box.new_tensor([0, 0, width, height])
        box = torch.where(fits.any(1)[:, None], box, whole_image)
        return CropParams(box, torch.rand(shape[0], generator=generator) < 0.5)

    def transform(self, images: Tensor, params: CropParams) -> Tensor:
        """Resize the boxes, bilinear; what lies outside a box is not seen."""
        levels.check(images)
        height, width = images.shape[2:]
        box = params.box.to(images.device)
        flip = params.flip.to(images.device)[:, None]
        across = (torch.arange(width, device=images.device).double() + 0.5) / width
        down = (torch.arange(height, device=images.device).double() + 0.5) / height
        across = torch.where(flip, 1 - across, across)
        x = (across * box[:, 2:3]).clamp(min=0.5).minimum(box[:, 2:3] - 0.5) + box[:, :1]
        y = (down * box[:, 3:]).clamp(min=0.5).minimum(box[:, 3:] - 0.5) + box[:, 1:2]
        grid = torch.stack(
            [
                (2 * x / width - 1)[:, None, :].expand(-1, height, -1),
                (2 * y / height - 1)[:, :, None].expand(-1, -1, width),
            ],
            -1,
        )
        given = levels.to_levels(images).float()
        cut = grid_sample(given, grid.to(given), padding_mode="border", align_corners=False)
        return levels.from_levels(cut.round_().clamp_(0, 255).byte(), images.dtype)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"area={self.area}, ratio={self.ratio}"


class Chain(Augmentation):
    """Augmentations one after another."""

    copies = 3

    def __init__(self, *parts: Augmentation) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(parts)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> tuple[Any, ...]:
        """The draws of all parts."""
        return tuple(part.sample(shape, generator) for part in self.parts)  # type: ignore[operator]

    def transform(self, images: Tensor, params: tuple[Any, ...]) -> Tensor:
        """Apply them in their order."""
        for part, drawn in zip(self.parts, params, strict=True):
            images = part.transform(images, drawn)  # type: ignore[operator]
        return images
