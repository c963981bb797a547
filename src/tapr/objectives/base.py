"""What every objective is: logits of the views in, a loss per image out."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tapr.types import Loss


class Objective(nn.Module, ABC):
    """Judges the logits of the views of a batch; memory, if any, lives in buffers."""

    @abstractmethod
    def forward(self, view_logits: Tensor) -> Loss:
        """`view_logits` is [V, B, K]; view 0 is the untouched image."""


class Term(Objective):
    """An objective with one named term in which every image counts."""

    name: str

    @abstractmethod
    def per_image(self, view_logits: Tensor) -> Tensor:
        """The loss of each image, [B]."""

    def forward(self, view_logits: Tensor) -> Loss:
        """Wrap `per_image`."""
        value = self.per_image(view_logits)
        keep = torch.ones_like(value, dtype=torch.bool)
        return Loss(value, keep, {self.name: value})


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis, in float32 at least, and finite.

    Below -10,000 a probability is 0 in every floating-point format, so the floor changes no value
    and no gradient; it only turns `0 * -inf` into 0.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact.log_softmax(-1).clamp(min=-1e4)
