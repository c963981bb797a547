"""The unadapted model: what everything is compared with."""

import torch
from torch import Tensor

from tapr.adapters.base import Adapter
from tapr.types import Prediction


class Source(Adapter):
    """Predicts with the model as it came, in evaluation mode."""

    def adapt(self, images: Tensor) -> Prediction:
        """Predict; nothing moves."""
        with torch.no_grad():
            return Prediction(self.logits(images), None, {}, steps=0, kept=0, refused=0)
