"""A memory over the classes, whose number nobody says: it gets its shape from the first batch.

Run it with `python examples/class_memory.py`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tapr
from tapr.objectives import entropy


class Uncommon(tapr.Learner):
    """Learns from images whose prediction is unlike the average so far, as ETA does."""

    average: Tensor | None  # [K], the moving average of the predictions

    def __init__(
        self, model: nn.Module, *, margin: float = 0.9, scope: str = "norm", **common: Any
    ) -> None:
        super().__init__(model, scope=scope, **common)
        self.margin = margin
        self.register_buffer("average", None)  # declared: reset, save and load know it

    def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
        """The entropy of the images that are unlike the average."""
        p = outputs.logits[0].softmax(1)
        mean = p.detach().mean(0)
        if self.average is None:
            self.average = mean
        similar = torch.cosine_similarity(p.detach(), self.average[None])
        self.average = 0.9 * self.average + 0.1 * mean
        value = entropy(outputs.logits[0])
        return tapr.Loss.mean(value, similar < self.margin, {"entropy": value})


if __name__ == "__main__":
    adapter = tapr.adapt(tapr.models.load("digits-small"), "class_memory:Uncommon")
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:300])  # handwritten ones
    for images in (digits.permute(0, 3, 1, 2).float() / 255).chunk(3):
        print(f"learnt from {adapter.predict(images).kept} of {len(images)} images")
    tapr.testing.check_method(partial(tapr.adapt, method="class_memory:Uncommon"))
    print("it keeps every promise of a method")
