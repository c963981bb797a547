"""Input normalisation as part of the model: every model of tapr takes images in [0, 1]."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from tapr.errors import InputError

Channels: TypeAlias = tuple[float, ...]  # a number for each channel


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

    def undone(self, images: Tensor) -> Tensor:
        """The images in [0, 1] that were normalised."""
        return images * self.std + self.mean


def find(model: nn.Module) -> Normalize | None:
    """The input normalisation in a model, if it has one of ours."""
    return next((layer for layer in model.modules() if isinstance(layer, Normalize)), None)


def in_front(model: nn.Module, mean: Sequence[float], std: Sequence[float]) -> nn.Sequential:
    """The model with a normalisation before it, of the model's type and on its device."""
    whole = nn.Sequential()
    layer, first = Normalize(mean, std), next(model.parameters(), None)
    whole.add_module("normalize", layer if first is None else layer.to(first.device, first.dtype))
    whole.add_module("model", model)
    return whole


def normalized(model: nn.Module, mean: Channels | None, std: Channels | None) -> nn.Module:
    """The model for images in [0, 1]: with this normalisation inside, if there is one."""
    if mean is None or std is None:
        return model
    layer = find(model)
    if layer is None:
        return in_front(model, mean, std)
    layer.load_state_dict(Normalize(mean, std).state_dict())
    return model


def normalisation(
    settings: Mapping[str, Any], channels: int | None = None
) -> tuple[Channels, Channels] | tuple[None, None]:
    """The mean and the deviation that settings in timm's words name, checked; None without any."""
    mean, std = settings.get("mean"), settings.get("std")
    if (mean is None) != (std is None):
        raise InputError("expected mean and deviation (std) together, got one of them")
    if mean is None:
        return None, None
    found = numbers("mean", mean, channels)
    return _unit("mean", found, 0.0), _unit("std", numbers("std", std, len(found)), 1e-9)


def numbers(key: str, values: object, count: int | None = None) -> Channels:
    """So many numbers; a single one stands for all of them, or for three channels."""
    if isinstance(values, Sequence) and len(values) == 1:
        values = values[0]
    if _is_number(values):
        values = [values] * (count or 3)
    good = isinstance(values, Sequence) and len(values) > 0 and all(map(_is_number, values))
    if not good or not isinstance(values, Sequence) or (count and len(values) != count):
        many = f"{count} numbers" if count else "a number for each channel"
        raise InputError(f"expected {many} as {key}, got {values!r}")
    return tuple(values)


def _is_number(value: object) -> bool:
    """Is this an int or a float, and no bool?"""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(key: str, values: Channels, least: float) -> Channels:
    """Check that a mean or deviation is for pixels in [0, 1], not for 0 .. 255."""
    for value in values:
        if not least <= value <= 1:
            hint = "; divide by 255, the images are in [0, 1]" if value > 1 else ""
            raise InputError(f"expected {key} from {least:g} to 1, got {value:g}{hint}")
    return values
