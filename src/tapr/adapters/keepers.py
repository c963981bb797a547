"""Keepers, which act on the model after a step, so that it does not drift away."""

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tapr.errors import InputError
from tapr.types import Loss

if TYPE_CHECKING:
    from tapr.adapters.loop import Loop


class Keeper(nn.Module, ABC):
    """Called after every step that was taken; what it remembers must be in buffers."""

    @abstractmethod
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Change the parameters in `adapter.moving`; `adapter.source` has their source values."""


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
    """Weight ensembling: after each step, every weight moves to its source value by `share`."""

    def __init__(self, share: float = 0.01) -> None:
        super().__init__()
        self.share = _unit("share", share)

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Move all weights a little towards the source."""
        for name, parameter in adapter.moving.items():
            parameter.lerp_(adapter.source.tensors[name].to(parameter), self.share)


class Recover(Keeper):
    """Returns to the source model when a moving average of the loss falls below `threshold`.

    Without a threshold it is `share` of ln K, the entropy of a uniform prediction. The average is
    cleared together with the model, unless `forget` is off: then the model returns to the source
    after every step until the average has risen.
    """

    average: Tensor

    def __init__(
        self,
        threshold: float | None,
        momentum: float = 0.9,
        *,
        share: float = 0.029,
        forget: bool = True,
    ) -> None:
        super().__init__()
        self.threshold, self.momentum = threshold, _unit("momentum", momentum)
        self.share, self.forget = share, forget
        self.register_buffer("average", torch.tensor(float("inf")))  # infinite: nothing seen yet

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Update the average, and restart when the model has become too certain of everything."""
        value = loss.total.detach().to(self.average)
        known = self.average.isfinite()
        self.average.copy_(torch.where(known, self.average.lerp(value, 1 - self.momentum), value))
        limit = self.share * math.log(adapter.classes) if self.threshold is None else self.threshold
        if self.average < limit:
            average = self.average.clone()
            adapter.restart()  # this average, too
            if not self.forget:
                self.average.copy_(average)


class Filter(Keeper):
    """A Kalman filter between the source and the adapted weights (CMF).

    The hidden weights lean towards the source by 1 - `keep`, then towards the adapted weights by a
    gain that follows from `noise`, the uncertainty a step adds; the adapted weights then lean
    towards the hidden ones by 1 - `keep`. None for the noise takes the published one, which is
    proportional to the number of weights.
    """

    hidden: Tensor | None  # all weights behind one another
    variance: Tensor
    least, still = (
        0.89,
        0.9999,
    )  # the bounds of the gain's complement: at least the first; above the second it is 1

    def __init__(self, keep: float = 0.99, noise: float | None = None) -> None:
        super().__init__()
        self.keep, self.noise = _unit("keep", keep), noise
        self.register_buffer("hidden", None)
        self.register_buffer("variance", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def forward(self, adapter: "Loop", loss: Loss) -> None:
        """Predict and correct the hidden weights, then move the adapted ones towards them."""
        adapted = list(adapter.moving.values())
        weights = nn.utils.parameters_to_vector(adapted)
        source = torch.cat([adapter.source.tensors[n].flatten() for n in adapter.moving])
        source = source.to(weights)
        hidden = (source if self.hidden is None else self.hidden).lerp(source, 1 - self.keep)
        self.hidden = hidden.lerp(weights, 1 - self._trust(len(weights)))
        nn.utils.vector_to_parameters(weights.lerp(self.hidden, 1 - self.keep), adapted)

    def _trust(self, weights: int) -> float:
        """The share of the hidden weights that is kept, from the uncertainty so far."""
        noise = 0.005 * weights / 38_400 if self.noise is None else self.noise  # 38,400: of ViT-B
        variance = self.keep**2 * float(self.variance) + noise
        trust = max((1 - noise) / (variance + 1 - noise), self.least)
        trust = 1.0 if trust >= self.still else trust
        self.variance.fill_(trust * variance)
        return trust


def _unit(name: str, value: float) -> float:
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"expected {name} from 0 to 1, got {value!r}")
    return value
