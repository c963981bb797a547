"""Norm: batch-norm statistics of the test images, without a gradient."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from tapr.adapters import Loop, Needs
from tapr.models.statistics import Statistics


class Norm(Loop):
    """Re-estimates the statistics of the batch-norm layers. Moves nothing else; 1 forward an image.

    Nado et al. 2020 (`batch`) and Schneider et al., NeurIPS 2020 (`blend`, with prior N). `running`
    and `cumulative` statistics are updated by a separate forward before the prediction.
    """

    title = "norm"
    only_own = True
    paper = "Nado et al. 2020; Schneider et al., NeurIPS 2020"
    needs = Needs(batch_norm="whose statistics this method re-estimates")

    def __init__(
        self,
        model: nn.Module,
        *,
        statistics: str = "batch",
        statistics_momentum: float = 0.1,
        prior: float = 16.0,
        share: float | Sequence[float] = 0.5,
        window: float = 500.0,
        **common: Any,
    ) -> None:
        policy = Statistics(statistics, "views", statistics_momentum, prior, share, window)
        super().__init__(model, statistics=policy, **common)
