"""Sums of objectives."""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from tapr.errors import InputError
from tapr.objectives.base import Objective
from tapr.types import Loss


class Weighted(Objective):
    """A weighted sum of objectives; an image counts when it counts in all of them.

    >>> from tapr.objectives import Entropy, JensenShannon
    >>> pest = Weighted([(1.0, JensenShannon()), (1.0, Entropy())])
    >>> sorted(pest(torch.zeros(3, 2, 10)).terms)
    ['consistency', 'entropy']
    """

    def __init__(self, parts: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        if not parts:
            raise InputError("expected at least one objective with a weight other than 0, got none")
        self.weights = tuple(weight for weight, _ in parts)
        self.parts = nn.ModuleList(part for _, part in parts)

    def forward(self, view_logits: Tensor) -> Loss:
        """Judge by every part and add up."""
        losses: list[Loss] = [part(view_logits) for part in self.parts]
        weighted = list(zip(self.weights, losses, strict=True))
        return Loss(
            per_image=reduce(torch.add, (w * loss.per_image for w, loss in weighted)),
            keep=reduce(torch.logical_and, (loss.keep for loss in losses)),
            terms={name: w * term for w, loss in weighted for name, term in loss.terms.items()},
        )

    def extra_repr(self) -> str:
        """Show the weights."""
        return f"weights={self.weights}"
