"""A method that corrects the logits by features: images near a class's mean are of that class.

Run it with `python examples/nearest_mean.py`.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import Correction


class ClassMeans(Correction):
    """Adds how close an image's features are to the mean of those predicted so before."""

    features = True
    means: Tensor | None  # [K, D], from the first batch on

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight
        self.register_buffer("means", None)

    def forward(self, outputs: tapr.Outputs) -> Tensor:
        """The logits, and the cosine to each class's mean."""
        assert outputs.features is not None
        assert outputs.head is not None
        features = nn.functional.normalize(outputs.features[0], dim=1)
        if self.means is None:
            self.means = nn.functional.normalize(outputs.head.weight.detach(), dim=1)
        answer = outputs.logits[0] + self.weight * features @ self.means.T
        members = nn.functional.one_hot(answer.argmax(1), outputs.classes).to(features)
        self.means = nn.functional.normalize(self.means + 0.1 * members.T @ features, dim=1)
        return answer


class NearestMean(tapr.Loop):
    """Predicts with a memory of each class's features. Moves no parameter; 1 forward an image."""

    def __init__(self, model: nn.Module, *, weight: float = 5.0, **common: Any) -> None:
        super().__init__(model, correction=ClassMeans(weight), **common)


if __name__ == "__main__":
    adapter = tapr.adapt(tapr.models.load("digits-small"), "nearest_mean:NearestMean", weight=10)
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:300])  # handwritten ones
    for images in (digits.permute(0, 3, 1, 2).float() / 255).chunk(3):
        changed = adapter(images).argmax(1) != adapter.model(images).argmax(1)
        print(f"{int(changed.sum())} of {len(images)} predictions corrected")
    tapr.testing.check_method(partial(tapr.adapt, method="nearest_mean:NearestMean"))
    print("it keeps every promise of a method")
