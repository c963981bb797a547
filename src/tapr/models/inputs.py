"""Input normalisation as part of the model: every model of tapr takes images in [0, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tapr.errors import InputError


class Normalize(nn.Module):
    """Subtract a mean and divide by a standard deviation per channel; by default the identity."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float] = (0, 0, 0), std: Sequence[float] = (1, 1, 1)) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images [B, C, H, W]."""
        if images.shape[-3] != len(self.mean):  # one channel would be spread over three
            raise InputError(
                f"expected images with {len(self.mean)} channels, got {images.shape[-3]}"
            )
        return (images - self.mean) / self.std


def find(model: nn.Module) -> Normalize | None:
    """The input normalisation in a model, if it has one of ours."""
    return next((layer for layer in model.modules() if isinstance(layer, Normalize)), None)


def in_front(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Sequential:
    """The model with a normalisation before it."""
    whole = nn.Sequential()
    whole.add_module("normalize", Normalize(mean, std))
    whole.add_module("model", model)
    return whole
