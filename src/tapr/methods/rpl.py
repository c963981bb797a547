"""RPL: pseudo-labels with a robust loss, on which wrong labels have little effect."""

from typing import Any

from torch import nn

from tapr.adapters import Learner
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.objectives import generalised_cross_entropy
from tapr.types import Loss, Outputs


class RPL(Learner):
    """Trains on its own labels by a bounded loss. Moves norm scales; 1 forward, 1 backward.

    Rusak et al., TMLR 2022: generalised cross-entropy, (1 - p ** q) / q with q = `exponent`, to the
    likeliest class; the labels are renewed at every step. Where paper and code differ: the
    reference script collects the normalisation scales, and then gives all parameters to the
    optimiser (`released`: SGD 7.5e-4 without momentum). `ccc` is the port by RDumb's authors.
    """

    title = "RPL"
    only_own = True
    paper = "Rusak et al., TMLR 2022"
    presets = {
        "released": {"scope": "all", "optimizer": "sgd", "lr": 7.5e-4, "momentum": 0.0},
        "ccc": {"optimizer": "sgd", "lr": 5e-4},
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        exponent: float = 0.8,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"exponent": exponent})
        super().__init__(model, optimizer=optimizer, lr=lr, scope=scope, predict=predict, **common)
        self.exponent = exponent

    def objective(self, outputs: Outputs) -> Loss:
        """The loss to the likeliest class of the original images."""
        value = generalised_cross_entropy(outputs.logits[0], self.exponent)
        return Loss.mean(value, terms={"self-training": value})
