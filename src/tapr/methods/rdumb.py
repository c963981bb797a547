"""RDumb: ETA that returns to the source model at fixed intervals."""

from typing import Any

import torch
from torch import Tensor, nn

from tapr.adapters import Learner
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.objectives import ReliableNovel
from tapr.types import Prediction


class RDumb(Learner):
    """ETA, and back to the source every 1,000 batches. Moves norm scales; 1 forward, 1 backward.

    Press et al., NeurIPS 2023. Weights, optimiser and ETA's average are reset together, before the
    batch that is due; batches without a step count as well. Where paper and code differ: for
    `released` images are reliable below ln(1000) / 2 - 1, which is 0.355 times ln K, not 0.4 times.
    """

    title = "RDumb"
    only_own = True
    paper = "Press et al., NeurIPS 2023"
    presets = {
        "released": {"threshold": 0.5 - 1 / 6.907755278982137, "optimizer": "sgd", "lr": 2.5e-4}
    }
    since: Tensor  # the last return, in batches

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int = 1000,
        threshold: float = 0.4,
        margin: float | None = None,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"threshold": threshold, "margin": margin, "every": every})
        super().__init__(
            model,
            ReliableNovel(threshold, margin),
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            **common,
        )
        self.every = every
        self.register_buffer("since", torch.tensor(0))

    def adapt(self, images: Tensor) -> Prediction:
        """Return to the source if that is due, then adapt as usual."""
        if self.since >= self.every:
            self.restart()
        self.since += 1
        self.guard.mark(self)
        return super().adapt(images)
