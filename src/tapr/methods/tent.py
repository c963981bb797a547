"""Tent: minimises the entropy by the scale and shift of the normalisation layers."""

from typing import Any

from torch import nn

from tapr.adapters import Learner
from tapr.adapters.schedule import Predict
from tapr.objectives import Uncertainty, Weighted


class Tent(Learner):
    """Minimises the entropy of the predictions. Moves normalisation scales; 1 forward, 1 backward.

    Wang et al., ICLR 2021. Images are predicted from the same forward that drives the step, as in
    the released code. Batch-norm layers use the batch's own statistics. `objective="come"`
    minimises COME instead (Zhang et al., ICLR 2025), the entropy with a mass for "I do not know";
    its released code gives that mass the weight of 1,000 classes: "come_1000".
    """

    title = "Tent"
    only_own = True
    paper = "Wang et al., ICLR 2021"
    presets = {"released": {"predict": "after"}}

    def __init__(
        self,
        model: nn.Module,
        *,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        entropy_weight: float = 1.0,
        objective: str = "entropy",
        **common: Any,
    ) -> None:
        super().__init__(
            model,
            Weighted([(entropy_weight, Uncertainty(objective))]),
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            **common,
        )
