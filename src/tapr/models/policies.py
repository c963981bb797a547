"""What a policy is, and those that remember nothing but what the layers store themselves.

The table in `tapr.models.statistics` says what each of them does.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tapr import sync
from tapr.models.moments import Forward, Moments, biased, hooked, moved, own, setting, unbiased

if TYPE_CHECKING:
    from tapr.models.statistics import Statistics


class Shift(NamedTuple):
    """How far the stream lies from what the source model knows, seen by one view."""

    view: int  # the one that meets the stored statistics
    nats: Tensor  # Kullback-Leibler divergence of a middle layer's channels, the mean over them


class Policy(nn.Module):
    """The batch-norm layers of a model, and whose statistics they use; they stay what they are."""

    moves = False  # does an adapting forward feed the stored statistics?
    predicts_apart = False  # does only a predicting forward meet them as the policy says?
    by_view = False  # does every view have statistics of its own?

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__()
        self.options = options
        self.layers: list[Any] = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        self.tracking = [
            layer
            for layer in self.layers
            if layer.running_mean is not None and layer.running_var is not None
        ]
        self.middle = self.tracking[len(self.tracking) // 2 :][:1]  # a list: it is no part of this

    def stored(self) -> list[Tensor]:
        """The statistics of all layers, and what is remembered beside them."""
        kept = [tensor for m in self.tracking for tensor in (m.running_mean, m.running_var)]
        return [*(tensor for tensor in kept if tensor is not None), *self.buffers()]

    def begin(self) -> None:
        """A batch begins: what is remembered by now is that of the batches before."""

    def adapting(self, views: int) -> Forward:
        """Around a forward of `views` views behind one another; feeds, unless that is apart."""
        return own(self.layers) if self.feeds_apart(views) else self.feeding(views)

    def feeds_apart(self, views: int) -> bool:
        """Do the original images among `views` views need a forward of their own, to feed alone?"""
        return self.moves and self.options.feed == "untouched" and views > 1

    def feeding(self, views: int = 1) -> Forward:
        """Around a forward that moves what the policy remembers, if it does."""
        return own(self.layers)

    def predicting(self, views: int = 1) -> Forward:
        """Around a forward, of `views` views behind one another, whose logits are the answer."""
        return nullcontext()

    def shift(self) -> Shift | None:
        """How far the stream lies from the source, if a view meets the stored statistics."""
        return None

    def forgets(self, mixed: bool = False) -> bool:
        """Has the stream changed with these images? Then the next forward begins it anew.

        Where the classes of the images are `mixed`, a milder change is one.
        """
        return False

    def keep_scales(self) -> None:
        """Before layers learn, keep the scales that the source model's view has."""

    def words(self, views: int) -> str:
        """The policy as tables name it."""
        feed = f", fed by {self.options.feed}" if self.moves and views > 1 else ""
        return f"{self.options.use}{feed}"


class Source(Policy):
    """Every forward meets the stored statistics."""

    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=False)


class Batch(Policy):
    """Every forward meets its own."""

    def predicting(self, views: int = 1) -> Forward:
        return own(self.layers)


class Running(Policy):
    """An adapting forward moves the stored statistics by `momentum`."""

    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=True, momentum=self.options.momentum)


class Cumulative(Policy):
    """The stored statistics become the mean over all adapting forwards."""

    moves = True

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__(model, options)
        for layer in self.tracking:
            layer.num_batches_tracked = torch.zeros_like(layer.running_mean[0], dtype=torch.long)

    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=True, momentum=None)  # torch's own cumulative mean


class Apart(Policy):
    """An adapting forward meets its own statistics, a predicting one the stored ones."""

    predicts_apart = True


class Blend(Policy):
    """A predicting forward mixes stored and own statistics; the stored ones count as images."""

    predicts_apart = True

    def predicting(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = biased(x)
        images = sync.rows(x)
        weight = images / (images + self.options.prior)
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), weight)
        variance = layer.running_var.lerp(variance.to(layer.running_var), weight)
        return (moved(layer, x, mean, variance), *inputs[1:])


class Prior(Policy):
    """MEMO's: the forward counts as one image, however many views of that there are."""

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    predicting = feeding

    def words(self, views: int) -> str:
        return f"prior {self.options.prior:g}"

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mean, variance = unbiased(inputs[0])
        weight = 1 / (1 + self.options.prior)
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), weight)
        variance = layer.running_var.lerp(variance.to(layer.running_var), weight)
        return (moved(layer, inputs[0], mean, variance), *inputs[1:])


class Robust(Policy):
    """RoTTA's: the gradient of an adapting forward goes through its part of the statistics."""

    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mean, variance = biased(inputs[0])
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), self.options.momentum)
        variance = layer.running_var.lerp(variance.to(layer.running_var), self.options.momentum)
        # New tensors: a graph may still need the old ones.
        layer.running_mean, layer.running_var = mean.detach(), variance.detach()
        return (moved(layer, inputs[0], mean, variance), *inputs[1:])


class Instance(Policy):
    """IABN, of NOTE."""

    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, partial(self._corrected, True))

    def predicting(self, views: int = 1) -> Forward:
        return hooked(self.tracking, partial(self._corrected, False))

    def _corrected(
        self, feeding: bool, layer: Any, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = layer.running_mean, layer.running_var
        if feeding:
            own_mean, own_variance = (part.to(mean) for part in unbiased(x))
            layer.running_mean = mean.lerp(own_mean.detach(), self.options.momentum)
            layer.running_var = variance.lerp(own_variance.detach(), self.options.momentum)
            mean, variance = own_mean, own_variance
        return (moved(layer, x, *self._of_each(x, mean, variance, layer.eps)), *inputs[1:])

    def _of_each(self, x: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Moments:
        """The statistics [B, C] of each image, where they differ by more than chance would."""
        pixels = x.shape[2:].numel()
        if pixels <= 1:
            return mean, variance
        own_variance, own_mean = torch.var_mean(x.flatten(2), 2)
        spread = variance + eps
        mean = mean + self._outside(own_mean - mean, (spread / pixels).sqrt())
        chance = spread * (2 / (pixels - 1)) ** 0.5
        return mean, (variance + self._outside(own_variance - variance, chance)).relu()

    def _outside(self, distance: Tensor, chance: Tensor) -> Tensor:
        """What of a distance is more than so many standard deviations."""
        return distance.sign() * (distance.abs() - self.options.deviations * chance).relu()


class InstanceBatch(Instance):
    """The same on the batch's own statistics; nothing is remembered."""

    moves = False

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._by_the_batch)

    predicting = feeding

    def _by_the_batch(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = (part.to(layer.running_mean) for part in unbiased(x))
        return (moved(layer, x, *self._of_each(x, mean, variance, layer.eps)), *inputs[1:])
