"""The one hook of an augmentation: sample the parameters, then transform purely."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Augmentation(nn.Module, ABC):
    """Images to changed images, with a draw of its own for every image.

    A subclass writes `sample` and `transform`; the parameters between them may be of any type.
    """

    @abstractmethod
    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Any:
        """Draw the parameters for a batch of this shape [B, C, H, W] from a CPU generator."""

    @abstractmethod
    def transform(self, images: Tensor, params: Any) -> Tensor:
        """Apply drawn parameters: the same images and parameters always give the same result."""

    def describe(self, params: Any) -> list[str]:
        """One caption per image, for people; empty when there is nothing to say."""
        return []

    def forward(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Draw, then transform."""
        return self.transform(images, self.sample(images.shape, generator))


class Identity(Augmentation):
    """Leaves every image as it is: views without augmentation.

    >>> Identity()(torch.ones(1, 3, 2, 2), torch.Generator()).sum().item()
    12.0
    """

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> None:
        """Nothing to draw."""

    def transform(self, images: Tensor, params: None) -> Tensor:
        """A copy of the images."""
        return images.clone()
