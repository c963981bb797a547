"""Keepers: what happens to the model after a step, so that it does not drift away."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tapr.errors import InputError
from tapr.types import Loss

if TYPE_CHECKING:
    from tapr.adapters.loop import Loop


class Keeper(nn.Module, ABC):
    """Called after every step that was taken; its memory, if any, lives in buffers."""

    @abstractmethod
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Change the adapter's parameters, `adapter.moving`; `adapter.source` has the first."""


class Restore(Keeper):
    """Stochastic restore: each weight returns to its source value with probability `rate`."""

    def __init__(self, rate: float = 0.01) -> None:
        super().__init__()
        self.rate = _unit("rate", rate)

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Draw which weights return, from the adapter's generator."""
        for name, parameter in adapter.moving.items():
            drawn = torch.rand(parameter.shape, generator=adapter.generator) < self.rate
            source = adapter.source.tensors[name].to(parameter)
            parameter.copy_(torch.where(drawn.to(parameter.device), source, parameter))


class Ensemble(Keeper):
    """Weight ensembling: after each step, `share` of every weight is the source's again."""

    def __init__(self, share: float = 0.01) -> None:
        super().__init__()
        self.share = _unit("share", share)

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Pull all weights a little towards the source."""
        for name, parameter in adapter.moving.items():
            parameter.lerp_(adapter.source.tensors[name].to(parameter), self.share)


class Recover(Keeper):
    """Returns to the source model when a moving average of the loss falls below `threshold`."""

    average: Tensor

    def __init__(self, threshold: float, momentum: float = 0.9) -> None:
        super().__init__()
        self.threshold, self.momentum = threshold, _unit("momentum", momentum)
        self.register_buffer("average", torch.tensor(float("inf")))  # infinite: nothing seen yet

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Follow the loss, and start again when the model has become too sure of everything."""
        value = loss.total.detach().to(self.average)
        known = self.average.isfinite()
        self.average.copy_(torch.where(known, self.average.lerp(value, 1 - self.momentum), value))
        if self.average < self.threshold:
            adapter.restart()  # this average, too


def _unit(name: str, value: float) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"expected {name} from 0 to 1, got {value!r}")
    return value
