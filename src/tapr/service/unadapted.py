"""The unadapted model: it answers when there is no time to adapt, and predicts a sample of images.

On the sample we measure the shift at every batch-norm layer: the Kullback-Leibler divergence
between normal distributions with the mean and variance of the images and with those that the layer
has stored, averaged over the channels, in nats.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tapr.models.moments import biased, nats
from tapr.models.output import logits_of


class Compared(NamedTuple):
    """The unadapted model's logits on images, and their shift."""

    logits: Tensor  # [B, K]
    shift: list[float]  # nats, by batch-norm layer


class Unadapted:
    """The model without adaptation."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()
        self.layers: list[Any] = [
            layer
            for layer in model.modules()
            if isinstance(layer, _BatchNorm) and layer.running_mean is not None
        ]

    @torch.no_grad()
    def predict(self, images: Tensor) -> Tensor:
        """The logits [B, K] of images [B, C, H, W]."""
        return logits_of(self.model(images), len(images))

    @torch.no_grad()
    def compare(self, images: Tensor) -> Compared:
        """Predict the images and measure their shift."""
        shift: dict[Any, float] = {}

        def measure(layer: Any, inputs: tuple[Tensor, ...]) -> None:
            stored = layer.running_mean, layer.running_var
            shift[layer] = float(nats(layer, biased(inputs[0].float()), stored))

        hooks = [layer.register_forward_pre_hook(measure) for layer in self.layers]
        try:
            logits = self.predict(images)
        finally:
            for hook in hooks:
                hook.remove()
        return Compared(logits, [shift.get(layer, 0.0) for layer in self.layers])
