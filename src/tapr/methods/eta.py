"""ETA: EATA without the term that needs source images."""

from typing import Any

from torch import nn

from tapr.adapters import Learner
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.objectives import ReliableNovel


class ETA(Learner):
    """Minimises the entropy of reliable, novel images. Moves norm scales; 1 forward, 1 backward.

    Niu et al., ICML 2022. An image drives the step when its entropy is below `threshold` times ln K
    and the cosine between its prediction and the average one is below `margin` (None: 0.4, 0.1 or
    0.05, as published for the nearest of 10, 100 and 1,000 classes). The more certain an image is,
    the more it counts. Without such an image no step is taken. `objective="come"` replaces the
    entropy by COME, also in the filter and in the weight, as its authors did.

    Where paper and code differ: `released` adapts BatchNorm2d layers only, at the rate of the
    ImageNet script; the class's own default there is a threshold of ln(1000) / 2 - 1 (0.355 times
    ln K), which the script overrides by 0.4. The authors' `reset` keeps the average; ours does not.
    """

    title = "ETA"
    only_own = True
    paper = "Niu et al., ICML 2022"
    presets = {"released": {"scope": "batch_norm", "optimizer": "sgd", "lr": 2.5e-4}}

    def __init__(
        self,
        model: nn.Module,
        *,
        threshold: float = 0.4,
        margin: float | None = None,
        objective: str = "entropy",
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"threshold": threshold, "margin": margin})
        super().__init__(
            model,
            ReliableNovel(threshold, margin, objective),
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            **common,
        )
