"""Which images to learn from: the batch at hand, unless a memory says otherwise."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Lesson(NamedTuple):
    """Images to learn from at one time."""

    images: Tensor  # [B, C, H, W]
    weights: Tensor | None = None  # [B], how much each counts; None: all the same


class Memory(nn.Module, ABC):
    """Keeps images of the stream, in buffers, and says when to learn from which.

    A memory that is still empty has buffers of no images, or creates them when it first sees some.
    """

    @abstractmethod
    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Take in a batch and the answer given for it; yield a lesson whenever one is due."""


class Recent(Memory):
    """The last `size` images of the stream: what is learnt from does not depend on batches."""

    images: Tensor

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", None)

    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Replace the oldest by the newest, then learn from all that are there."""
        known = images if self.images is None else torch.cat([self.images, images])
        self.images = known[-self.size :].clone()
        yield Lesson(self.images)
