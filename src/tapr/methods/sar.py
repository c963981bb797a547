"""SAR: minimises entropy sharpness-aware, on reliable images, and recovers from a collapse."""

import math
from functools import partial
from typing import Any

from torch import Tensor, nn

from tapr.adapters import SAM, Learner, Recover
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.objectives import UNCERTAINTIES
from tapr.types import Loss, Outputs


class SAR(Learner):
    """Sharpness-aware entropy of reliable images. Moves lower norm scales; 2 forwards, 2 backwards.

    Niu et al., ICLR 2023. Images with an entropy below `threshold` times ln K are reliable. They
    drive the first half of a SAM step; those that are also reliable at the worst point within
    `radius` drive its second half. Without such images no step is taken, and momentum moves
    nothing. When the moving average of the loss falls below `recovery`, the model has become too
    certain of everything and returns to the source. `objective="come"` minimises COME instead.

    Where paper and code differ: None for `recovery` is 0.029 ln K, which is the paper's 0.2 for
    1,000 classes; on ten classes 0.2 itself, which the code has as a literal, may recover at almost
    every batch. The code does not clear the average at a recovery (`forget=False`), so that
    recoveries repeat until it rises. It finds the top blocks by their names in a few models (scope
    `named_norm`); by default we leave out the top quarter of the blocks, whatever their names.
    `released` has all three; `benchmark` is what ROID's authors ran: the same, but it clears the
    average.
    """

    title = "SAR"
    only_own = True
    paper = "Niu et al., ICLR 2023"
    presets = {
        "released": {"lr": 2.5e-4, "scope": "named_norm", "recovery": 0.2, "forget": False},
        "benchmark": {"scope": "named_norm", "recovery": 0.2},
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        threshold: float = 0.4,
        radius: float = 0.05,
        recovery: float | None = None,
        forget: bool = True,
        objective: str = "entropy",
        optimizer: Any = "sam",  # or another one, which is not sharpness-aware
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        scope: Any = "lower_norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"threshold": threshold, "radius": radius, "recovery": recovery})
        check_options({"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        check_options({"forget": forget})
        if optimizer == "sam":
            optimizer = partial(
                SAM, lr=lr, radius=radius, momentum=momentum, weight_decay=weight_decay
            )
        super().__init__(
            model,
            optimizer=optimizer,
            lr=lr,
            momentum=momentum,
            weight_decay=weight_decay,
            scope=scope,
            predict=predict,
            keepers=[Recover(recovery, forget=forget)],
            **common,
        )
        self.threshold, self.uncertainty = threshold, UNCERTAINTIES[objective]
        self._reliable: Tensor | None = None  # at the first of the two points

    def objective(self, outputs: Outputs) -> Loss:
        """The entropy of the reliable images; at the second point, of those reliable at both."""
        value = self.uncertainty(outputs.logits[0])
        keep = value.detach() < self.threshold * math.log(outputs.classes)
        if getattr(self.optimizer, "climbed", False) and self._reliable is not None:
            keep = keep & self._reliable
        else:
            self._reliable = keep
        return Loss.mean(value, keep, {"entropy": value})
