"""The untouched images and their views, in one tensor ready for one forward."""

import torch
from torch import Tensor, nn

from tapr.augment.base import Augmentation
from tapr.errors import InputError


class Views(nn.Module):
    """Puts `count` augmented views behind the untouched images.

    >>> from tapr.augment import Identity
    >>> views = Views(Identity(), count=2)(torch.zeros(4, 3, 8, 8), torch.Generator())
    >>> views.shape
    torch.Size([12, 3, 8, 8])
    >>> views.reshape(3, 4, 3, 8, 8)[0].shape  # the untouched images
    torch.Size([4, 3, 8, 8])
    """

    def __init__(self, augmentation: Augmentation, count: int = 2) -> None:
        super().__init__()
        if count < 0:
            raise InputError(f"expected count of views >= 0, got {count}")
        self.augmentation = augmentation
        self.count = count

    def forward(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """[B, C, H, W] to [(1 + count) * B, C, H, W], view by view, the untouched images first."""
        if not self.count:
            return images
        # One call for all views: the fewer, larger groups of equal ops are faster.
        repeated = images.repeat(self.count, 1, 1, 1)
        params = self.augmentation.sample(repeated.shape, generator)
        return torch.cat([images, self.augmentation.transform(repeated, params)])

    def extra_repr(self) -> str:
        """The arguments, for `repr`."""
        return f"count={self.count}"
