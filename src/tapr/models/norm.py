"""Whose statistics batch normalisation uses, and which images feed them.

Two kinds of forward exist. In an *adapting* forward all views of a batch stand behind one another
and are normalised by their joint statistics (under `source`: by the stored ones). In a *predicting*
forward only the untouched images are there, and `use` says whose statistics they meet:

| use          | statistics at prediction                                              |
|--------------|-----------------------------------------------------------------------|
| `source`     | the stored ones, never moved                                          |
| `batch`      | the images' own                                                       |
| `running`    | the stored ones, moved by `momentum` at every adapting forward        |
| `cumulative` | the mean over the stream so far, one entry for every adapting forward |
| `blend`      | (prior x stored + n x own) / (prior + n) for n images                 |

`feed` says which images move these statistics: all `views`, in the adapting forward itself, or the
`untouched` ones, in a further forward without the others: what a layer sees depends on whose
statistics the layers before it used. Layers that keep no running statistics always use the images'
own.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tapr.errors import InputError, ModelError
from tapr.registry import Registry

Use = Literal["source", "batch", "running", "cumulative", "blend"]
Feed = Literal["views", "untouched"]
USES = Registry("statistics", {use: use for use in get_args(Use)})
FEEDS = Registry("feed", {feed: feed for feed in get_args(Feed)})


class Statistics(NamedTuple):
    """A policy: see the module's table."""

    use: Use = "batch"
    feed: Feed = "views"
    momentum: float = 0.1
    prior: float = 16.0

    @property
    def moves(self) -> bool:
        """Are the stored statistics fed?"""
        return self.use in ("running", "cumulative")

    def check(self) -> None:
        """Refuse names nobody knows and numbers outside their range."""
        USES[self.use], FEEDS[self.feed]
        if not isinstance(self.momentum, int | float) or not 0 < self.momentum <= 1:
            raise InputError(f"expected a statistics momentum in (0, 1], got {self.momentum!r}")
        if not isinstance(self.prior, int | float) or not 0 <= self.prior < float("inf"):
            raise InputError(f"expected a prior strength of 0 or more, got {self.prior!r}")


class BatchNorms:
    """The batch-norm layers of a model under one policy; the layers stay what they are."""

    def __init__(self, model: nn.Module, statistics: Statistics) -> None:
        statistics.check()
        self.statistics = statistics
        self.layers: list[Any] = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        self.tracking = [layer for layer in self.layers if layer.running_mean is not None]
        if statistics.use == "cumulative":
            for layer in self.tracking:
                layer.num_batches_tracked.zero_()

    def require(self) -> None:
        """Refuse a model without batch normalisation."""
        if not self.layers:
            raise ModelError(
                "expected a model with BatchNorm layers, whose statistics this method re-estimates,"
                " and found none; 'tent' and 'pest' adapt models with other or no normalisation"
            )

    def buffers(self) -> list[Tensor]:
        """The stored statistics of all layers."""
        return [tensor for m in self.tracking for tensor in (m.running_mean, m.running_var)]

    def feeds_apart(self, views: int) -> bool:
        """Do the untouched among `views` views need a forward of their own, to feed alone?"""
        return self.statistics.moves and self.statistics.feed == "untouched" and views > 1

    @contextmanager
    def adapting(self, views: int) -> Iterator[None]:
        """Normalise a forward of `views` views behind one another, and feed if none is apart."""
        if self.statistics.moves and not self.feeds_apart(views):
            with self.feeding():
                yield
        else:
            training = self.statistics.use != "source"
            with _mode(self.layers, training=training, track_running_stats=False):
                yield

    @contextmanager
    def feeding(self) -> Iterator[None]:
        """Normalise a forward by its own statistics, and move the stored ones towards them."""
        # Momentum None is torch's own cumulative mean.
        rate = None if self.statistics.use == "cumulative" else self.statistics.momentum
        with _mode(self.layers, training=True, momentum=rate):
            yield

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Normalise a forward of the untouched images; nothing moves."""
        with ExitStack() as stack:
            if self.statistics.use == "batch":
                stack.enter_context(_mode(self.layers, training=True, track_running_stats=False))
            if self.statistics.use == "blend":
                stack.enter_context(_hooks(self.tracking, self._blend))
            yield

    def _blend(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """A pre-hook that makes a layer in evaluation mode normalise by the blend.

        It moves the input so that the layer's arithmetic with its stored statistics comes to a
        normalisation by the blended ones; the rest of the layer stays its own.
        """
        x = inputs[0]
        axes = [axis for axis in range(x.ndim) if axis != 1]
        variance, mean = torch.var_mean(x, axes, correction=0)
        weight = len(x) / (len(x) + self.statistics.prior)
        blended_mean = layer.running_mean.lerp(mean.to(layer.running_mean), weight)
        blended_variance = layer.running_var.lerp(variance.to(layer.running_var), weight)
        scale = ((layer.running_var + layer.eps) / (blended_variance + layer.eps)).sqrt()
        shift = layer.running_mean - blended_mean * scale
        shape = (1, -1) + (1,) * (x.ndim - 2)
        return (x * scale.to(x).view(shape) + shift.to(x).view(shape), *inputs[1:])


@contextmanager
def _mode(layers: list[Any], **settings: object) -> Iterator[None]:
    """Set attributes of the layers, and put their own back afterwards."""
    before = [{name: getattr(layer, name) for name in settings} for layer in layers]
    try:
        for layer in layers:
            vars(layer).update(settings)
        yield
    finally:
        for layer, own in zip(layers, before, strict=True):
            vars(layer).update(own)


@contextmanager
def _hooks(layers: list[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Run `hook` before each of the layers."""
    handles = [layer.register_forward_pre_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
