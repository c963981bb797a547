"""A method of your own: Tent, but only images the model is sure enough about drive the step.

Run it with `python examples/own_method.py`; from this folder it is also a method of the command:
`tapr bench digits --method source,tent,own_method:Sure`.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import GradientAdapter, Schedule
from tapr.models.norm import Statistics
from tapr.models.scope import normalisation
from tapr.objectives import Objective, entropy
from tapr.types import Loss


class SureEntropy(Objective):
    """The entropy of an image, where it is below a share of the most that is possible."""

    def __init__(self, margin: float) -> None:
        super().__init__()
        self.margin = margin

    def forward(self, view_logits: Tensor) -> Loss:  # [V, B, K]; view 0 is the untouched image
        value = entropy(view_logits[0])
        keep = value < self.margin * math.log(view_logits.shape[-1])
        return Loss(value, keep, {"entropy": value})


class Sure(GradientAdapter):
    """Moves scale and shift of the normalisation layers by the images it is sure about."""

    def __init__(
        self, model: nn.Module, *, margin: float = 0.4, lr: float = 1e-3, **options: Any
    ) -> None:
        super().__init__(
            model,
            SureEntropy(margin),
            partial(torch.optim.Adam, lr=lr),
            scope=normalisation(model),
            statistics=Statistics("batch"),
            schedule=Schedule(predict="before"),
            **options,
        )


if __name__ == "__main__":
    model = tapr.models.load("digits-small")
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:400])  # handwritten ones
    images = digits.permute(0, 3, 1, 2).float() / 255
    adapter = tapr.adapt(model, "own_method:Sure", margin=0.3)
    for batch in images.view(4, 100, *images.shape[1:]):
        prediction = adapter.predict(batch)
        print(f"loss {prediction.loss:.3f} over {prediction.kept} of {len(batch)} images")
