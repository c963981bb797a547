"""Batch-norm statistics re-estimated on the test data (Nado et al.; Schneider et al.)."""

from typing import Any

import torch
from torch import Tensor, nn

from tapr.adapters.base import Adapter
from tapr.adapters.cost import Passes
from tapr.models.norm import BatchNorms, Statistics
from tapr.models.state import all_finite
from tapr.types import Prediction


class Norm(Adapter):
    """Re-estimates the statistics of the batch-norm layers; no gradient, no parameter moves.

    `running` and `cumulative` statistics are fed by a forward of their own before the prediction.
    """

    def __init__(
        self, model: nn.Module, *, statistics: Statistics | None = None, **options: Any
    ) -> None:
        super().__init__(model, **options)
        self.norms = BatchNorms(self.model, statistics or Statistics("batch"))
        self.norms.require()
        self.passes = Passes(forward=1 + self.norms.statistics.moves, backward=0)

    @torch.no_grad()
    def adapt(self, images: Tensor) -> Prediction:
        """Feed the statistics if they are kept, then predict with them."""
        refused = 0
        if self.norms.statistics.moves:
            with self.norms.feeding():
                self.logits(images)
            if not all_finite(self.norms.buffers()):
                self.refuse("the statistics of this batch are not finite")
                refused = 1
        with self.norms.predicting():
            logits = self.logits(images)
        return Prediction(logits, None, {}, steps=0, kept=len(images), refused=refused)
