"""The loss that ROID and CMF share: self-training with images that are certain and diverse."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tapr.augment import Augmentation
from tapr.objectives import (
    entropy,
    log_probabilities,
    soft_likelihood_ratio,
    symmetric_cross_entropy,
)
from tapr.types import Loss, Outputs

# CoTTA's augmentation with the parameters of ROID and CMF.
KATANA = {"padding": "reflect", "blur": False, "noise": False}


class CertainOptions(NamedTuple):
    """The options of the loss `Certain`."""

    temperature: float = 1 / 3
    weighting: bool = True
    agreement: bool = True
    detach: bool = False
    full_batch: bool = False


class Certain(nn.Module):
    """The soft likelihood ratio of images, and their agreement with an augmented view, weighted.

    The weight of an image grows with its diversity (how little its prediction resembles the average
    so far) and with its certainty. Images less diverse than the batch's mean are left out. Both are
    scaled to 0 ... 1 within the batch; if all images are the same, all have the same weight.

    With `detach` the agreement teaches the augmented view only. `full_batch` divides the sums by
    the largest batch so far, so that a short last batch takes a smaller step.
    """

    average: Tensor | None  # [K], of the predictions; uniform at first
    largest: Tensor

    def __init__(self, augmentation: Augmentation, options: CertainOptions) -> None:
        super().__init__()
        self.augmentation, self.options = augmentation, options
        self.register_buffer("average", None)
        self.register_buffer("largest", torch.tensor(0))

    def forward(
        self, outputs: Outputs, ask: Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> Loss:
        """The loss; `ask` runs the model on augmented images, in a separate forward."""
        logits = outputs.logits[0]
        weights = self._weights(logits.detach())
        keep = weights > 0
        terms = {"likelihood": weights * soft_likelihood_ratio(logits)}
        if self.options.agreement:
            said = ask(self.augmentation(outputs.images[keep], generator))
            clean = logits[keep].detach() if self.options.detach else logits[keep]
            agreement = weights[keep] * symmetric_cross_entropy(said, clean)
            terms["consistency"] = torch.zeros_like(weights).masked_scatter(keep, agreement)
        per_image = torch.stack(list(terms.values())).sum(0)
        self.largest.clamp_(min=len(logits))
        divisor = int(self.largest) if self.options.full_batch else len(logits)
        return Loss(per_image.sum() / divisor, per_image, keep, terms)

    def _weights(self, logits: Tensor) -> Tensor:
        """The weight of every image, [B]; 0: it is left out."""
        p = log_probabilities(logits).exp()
        if self.average is None:
            self.average = torch.full_like(p[0], 1 / p.shape[1])
        diverse = _scaled(1 - torch.cosine_similarity(self.average[None], p))
        certain = _scaled(-entropy(logits))
        self.average = 0.9 * self.average + 0.1 * p.mean(0)
        if not self.options.weighting:
            return torch.ones_like(diverse)
        weights = (diverse * certain / self.options.temperature).exp()
        return weights.where(diverse >= diverse.mean(), torch.zeros_like(weights))


def _scaled(values: Tensor) -> Tensor:
    """The values scaled from 0 for the least to 1 for the largest; all 0 if they are the same."""
    low, high = values.aminmax()
    return (values - low) / (high - low) if high > low else torch.zeros_like(values)
