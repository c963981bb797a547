"""A method of your own: Tent, but only images the model is sure enough about drive the step.

Run it with `python examples/own_method.py`; from this folder it is also a method of the command:
`tapr bench digits --methods source,tent,own_method:Sure`.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import nn

import tapr
from tapr.objectives import entropy


class Sure(tapr.Learner):
    """Moves normalisation scales by the images it is sure about; 1 forward, 1 backward."""

    def __init__(
        self,
        model: nn.Module,
        *,
        margin: float = 0.4,
        optimizer: str = "adam",
        scope: str = "norm",
        predict: Any = "before",
        **common: Any,
    ) -> None:
        super().__init__(model, optimizer=optimizer, scope=scope, predict=predict, **common)
        self.margin = margin

    def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
        """The entropy of the original images, where it is a small part of what is possible."""
        value = entropy(outputs.logits[0])
        keep = value < self.margin * math.log(outputs.classes)
        return tapr.Loss.mean(value, keep, {"entropy": value})


if __name__ == "__main__":
    model = tapr.models.load("digits-small")
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:400])  # handwritten ones
    images = digits.permute(0, 3, 1, 2).float() / 255
    adapter = tapr.adapt(model, "own_method:Sure", margin=0.3)
    for batch in images.view(4, 100, *images.shape[1:]):
        prediction = adapter.predict(batch)
        print(f"loss {prediction.loss:.3f} over {prediction.kept} of {len(batch)} images")
    tapr.testing.check_method(partial(tapr.adapt, method="own_method:Sure"))
    print("it keeps every promise of a method")
