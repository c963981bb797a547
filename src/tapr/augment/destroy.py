"""Augmentations that destroy what an object looks like and keep the rest: DeYO's."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from tapr.augment.base import Augmentation, whole
from tapr.registry import Registry


class Patches(Augmentation):
    """Cuts every image into `side` x `side` patches and shuffles them, each image in its own way.

    An image whose sides `side` does not divide is resized before and after.
    """

    def __init__(self, side: int = 4) -> None:
        super().__init__()
        self.side = whole("side", side, 1, 64)

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """An order of the patches for each image, [B, side * side]."""
        return torch.rand(shape[0], self.side**2, generator=generator).argsort(1)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        """Put the patches into that order."""
        count, channels, *sides = images.shape
        height, width = (max(length // self.side, 1) * self.side for length in sides)
        cut = _resized(images, height, width)
        size = (height // self.side, width // self.side)
        cut = cut.reshape(count, channels, self.side, size[0], self.side, size[1])
        cut = cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)  # [B, patches, C, h, w]
        order = params.to(images.device)[..., None, None, None].expand(-1, -1, *cut.shape[2:])
        cut = cut.gather(1, order).reshape(count, self.side, self.side, channels, *size)
        whole_again = cut.permute(0, 3, 1, 4, 2, 5).reshape(count, channels, height, width)
        return _resized(whole_again, *sides)


class Pixels(Augmentation):
    """Shuffles the pixels, all images of a batch in the same way."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        """An order of the pixels, [H * W]."""
        return torch.randperm(shape[2] * shape[3], generator=generator)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        """Put the pixels into that order."""
        return images.flatten(2)[:, :, params.to(images.device)].view_as(images)


class Occlusion(Augmentation):
    """Hides the middle of every image, half as high and wide, by the image's mean colour."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> None:
        """Draw nothing: the place is always the same."""

    def transform(self, images: Tensor, params: None) -> Tensor:
        """Fill the middle."""
        height, width = images.shape[2:]
        rows = slice(height // 4, height // 4 + height // 2)
        columns = slice(width // 4, width // 4 + width // 2)
        hidden = images.clone()
        hidden[:, :, rows, columns] = images.mean((2, 3), keepdim=True)
        return hidden


def _resized(images: Tensor, height: int, width: int) -> Tensor:
    if (height, width) == tuple(images.shape[2:]) or not len(images):
        return images
    return functional.interpolate(images, (height, width), mode="bilinear", antialias=True)


DESTROYERS: Registry[Callable[[], Augmentation]] = Registry(
    "way to destroy", {"patch": Patches, "pixel": Pixels, "occlusion": Occlusion}
)
