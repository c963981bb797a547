"""What an augmentation is, the views made with it, and the checks of its arguments.

An augmentation draws its parameters first and then transforms the images purely.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tapr.errors import InputError

LONGEST = 100  # ops in a row, or chains side by side


class Augmentation(nn.Module, ABC):
    """Turns images into changed images, with a draw of its own for every image.

    A subclass writes `sample` and `transform`; the parameters between them may be of any type.
    """

    by_image = False  # are they None, or tuples of tensors, with a row for each image?
    copies = 2  # of the images at a time: as they come, as they go, and perhaps between

    @abstractmethod
    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Any:
        """Draw the parameters for a batch of this shape [B, C, H, W] from a CPU generator."""

    @abstractmethod
    def transform(self, images: Tensor, params: Any) -> Tensor:
        """Apply drawn parameters: the same images and parameters always give the same result."""

    def describe(self, params: Any) -> list[str]:
        """Caption each image with what was drawn for it; [] when there are no captions."""
        return []

    def forward(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw parameters for these images and apply them."""
        return self.transform(images, self.sample(images.shape, generator))


class Identity(Augmentation):
    """Leaves every image as it is: views without augmentation.

    >>> Identity()(torch.ones(1, 3, 2, 2), torch.Generator()).sum().item()
    12.0
    """

    by_image = True

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> None:
        """Draw nothing: there are no parameters."""

    def transform(self, images: Tensor, params: None) -> Tensor:
        """Return a copy of the images."""
        return images.clone()


class Views(nn.Module):
    """Puts `count` augmented views behind the original images; `original=False` leaves those out.

    >>> views = Views(Identity(), count=2)(torch.zeros(4, 3, 8, 8), torch.Generator())
    >>> views.shape
    torch.Size([12, 3, 8, 8])
    >>> views.reshape(3, 4, 3, 8, 8)[0].shape  # the original images
    torch.Size([4, 3, 8, 8])
    """

    def __init__(
        self, augmentation: Augmentation, count: int = 2, *, original: bool = True
    ) -> None:
        super().__init__()
        if count < 1 - original:
            raise InputError(f"expected count of views >= {1 - original}, got {count}")
        self.augmentation = augmentation
        self.count, self.original = count, original

    @property
    def together(self) -> int:
        """Images for each image that comes."""
        return self.count + self.original

    @property
    def copies(self) -> int:
        """Copies of the views that stand while they are made."""
        copies = getattr(self.augmentation, "copies", None)
        return copies if isinstance(copies, int) else Augmentation.copies

    @property
    def by_image(self) -> bool:
        """Can some of the images of a batch be changed without the others?"""
        return getattr(self.augmentation, "by_image", False) is True

    def forward(
        self, images: Tensor, generator: torch.Generator, part: tuple[int, slice] | None = None
    ) -> Tensor:
        """Turn [B, C, H, W] into [(1 + count) * B, C, H, W]: the originals, then the views.

        The images may be a `part` of a batch, so many images of which they are those in a slice:
        then they get the draws that they would get within it.
        """
        if not self.count:
            return images
        # One call for all views: the fewer, larger groups of equal ops are faster.
        repeated = images.repeat(self.count, 1, 1, 1)
        total, here = part or (len(images), slice(None))
        shape = torch.Size((self.count * total, *images.shape[1:]))
        params = self.augmentation.sample(shape, generator)
        if part:
            params = _rows(params, torch.arange(self.count * total).view(-1, total)[:, here])
        changed = self.augmentation.transform(repeated, params)
        if not isinstance(changed, Tensor) or changed.shape != repeated.shape:
            got = list(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            raise InputError(
                f"expected the augmentation to return images {list(repeated.shape)}, got {got}"
            )
        return torch.cat([images, changed]) if self.original else changed

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"count={self.count}" + ("" if self.original else ", original=False")


def _rows(params: Any, rows: Tensor) -> Any:
    """The draws for some images, of an augmentation that draws by image."""
    if params is None:
        return None
    if isinstance(params, Tensor):
        return params[rows.flatten()]
    parts = [_rows(part, rows) for part in params]
    return type(params)(*parts) if hasattr(params, "_fields") else tuple(parts)


def whole(name: str, value: int, least: int, most: int) -> int:
    """Check that an argument is a whole number between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"expected {name} to be a whole number {least} to {most}, got {value!r}")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def between(name: str, value: float, least: float, most: float) -> float:
    """Check that an argument is a number between two bounds."""
    if not _is_number(value) or not least <= value <= most:
        raise InputError(f"expected {name} from {least:g} to {most:g}, got {value!r}")
    return float(value)


def flag(name: str, value: bool) -> bool:
    """Check that an argument is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"expected {name} to be True or False, got {value!r}")
    return value


def positive(name: str, value: float) -> float:
    """Check that an argument is a finite number above zero."""
    if not _is_number(value) or not 0 < value <= sys.float_info.max:
        raise InputError(f"expected {name} > 0, got {value!r}")
    return float(value)
