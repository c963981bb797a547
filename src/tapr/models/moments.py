"""Mean and variance of a layer's channels, their arithmetic, and layers that normalise by them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tapr import sync

Forward = AbstractContextManager[None]  # within it, forwards are normalised in one way
Moments = tuple[Tensor, Tensor]  # mean and variance: of each channel, [C], or in G groups, [G, C]
Scales = tuple[Tensor | None, Tensor | None]  # weight and bias, likewise
FAR = 0.5  # nats between two distributions: from there on one says little about the other
MOST = 3.0  # nats of one channel: one that was silent at training must not speak for its layer
FUSED = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)  # subclasses may do more than these


def own(layers: list[Any]) -> Forward:
    """Normalise a forward by its own statistics; nothing is remembered."""
    return setting(layers, training=True, track_running_stats=False)


def biased(x: Tensor) -> Moments:
    """Mean and variance of the channels, as batch normalisation takes it."""
    variance, mean = torch.var_mean(x, _but_channels(x), correction=0)
    return sync.moments(mean, variance)


def unbiased(x: Tensor) -> Moments:
    """Mean and unbiased variance of the channels; of a single value the variance is 0."""
    values = x.numel() // x.shape[1]
    if sync.share() is not None:
        mean, variance = biased(x)
        values = values // len(x) * sync.rows(x)
        return mean, variance * (values / max(values - 1, 1))
    variance, mean = torch.var_mean(x, _but_channels(x), correction=min(1, values - 1))
    return mean, variance


def _but_channels(x: Tensor) -> list[int]:
    return [axis for axis in range(x.ndim) if axis != 1]


class _Moments(torch.autograd.Function):
    """Mean and variance of the channels, [C], by the kernel of torch's own batch normalisation.

    Where channels lie last, `torch.var_mean` takes forty times as long.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Moments:
        mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
        ctx.save_for_backward(x, mean)
        return mean, variance

    @staticmethod
    def backward(ctx: Any, by_mean: Tensor, by_variance: Tensor) -> Tensor:
        x, mean = ctx.saved_tensors
        shape = (1, -1) + (1,) * (x.ndim - 2)
        slope: Tensor = torch.addcmul(
            (by_mean - 2 * by_variance * mean).view(shape), x, 2 * by_variance.view(shape)
        )
        return slope.div_(x.numel() // len(mean))


def in_groups(layer: Any, x: Tensor, source: list[bool]) -> Moments:
    """Mean and variance of the channels in each of the groups behind one another.

    Where a group will meet nothing but the stored ones, these stand in for them.
    """
    stored = layer.running_mean, layer.running_var
    parts = x.to(layer.running_mean).chunk(len(source))
    found = [
        stored if known else _Moments.apply(part)  # type: ignore[no-untyped-call]
        for part, known in zip(parts, source, strict=True)
    ]
    if len(found) == 1:
        return sync.moments(*found[0])
    means, variances = zip(*found, strict=True)
    return sync.moments(torch.stack(means), torch.stack(variances))


def mixture(one: Moments, other: Moments, share: Tensor) -> Moments:
    """Mean and variance of a mixture with `share` of the other: the law of total variance."""
    mean = one[0].lerp(other[0].expand_as(one[0]), share)
    variance = one[1].lerp(other[1].expand_as(one[1]), share)
    return mean, variance + share * (1 - share) * (one[0] - other[0]).square()


def nats(layer: Any, one: Moments, other: Moments) -> Tensor:
    """Kullback-Leibler divergence of normal distributions with these moments: channels' mean.

    Each channel counts for `MOST` nats at the most.
    """
    known = other[1] + layer.eps
    ratio = (one[1] + layer.eps) / known
    distance = (one[0] - other[0]).square() / known
    found: Tensor = 0.5 * (ratio - 1 - ratio.log() + distance)
    return found.clamp(max=MOST).mean(-1)


def anchored(
    layer: Any, stream: Moments, stored: Moments, share: Tensor, least: float = 0.0
) -> Moments:
    """The stream's mean and variance, drawn to the stored ones by `share`, at least by `least`.

    Variances are mixed by their logarithms, since corruptions change them by factors. The share
    fades as the two lie far apart, where the stored statistics say little about the stream; a share
    of 1 stays, and so does `least`.
    """
    fade = (-(nats(layer, stream, stored) / FAR).square()).exp()
    share = share.where(share == 1, (share * fade).clamp(min=least))[..., None]
    mean = stream[0].lerp(stored[0].expand_as(stream[0]), share)
    spread, known = stream[1] + layer.eps, stored[1] + layer.eps
    return mean, spread.pow(1 - share) * known.pow(share) - layer.eps


def moved(layer: Any, x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """What a layer in evaluation mode has to get to normalise `x` by these statistics.

    The layer's arithmetic with its stored statistics then comes to a normalisation by the given
    ones, [C] or [G, C] for G groups behind one another; the rest of the layer stays its own.
    """
    scale: Tensor = ((layer.running_var + layer.eps) / (variance + layer.eps)).sqrt()
    shift = layer.running_mean - mean * scale
    parts = x if mean.ndim == 1 else x.view(len(mean), -1, *x.shape[1:])
    shape = (*mean.shape[:-1], 1, -1) + (1,) * (x.ndim - 2)
    changed: Tensor = parts * scale.to(x).view(shape) + shift.to(x).view(shape)
    return changed.view_as(x)


def scales_of(layer: Any, groups: int) -> Scales:
    return layer.weight, layer.bias


def normalised(layer: Any, x: Tensor, moments: Moments, scales: Scales) -> Tensor:
    """What the layer makes of `x` with these statistics, [C] or [G, C]: one multiply-add."""
    (mean, variance), (weight, bias) = moments, scales
    scale = (variance + layer.eps).rsqrt()
    scale = scale if weight is None else scale * weight
    shift = -mean * scale if bias is None else bias - mean * scale
    parts = x if mean.ndim == 1 else x.view(len(mean), -1, *x.shape[1:])
    shape = (*mean.shape[:-1], 1, -1) + (1,) * (x.ndim - 2)
    changed: Tensor = torch.addcmul(shift.to(x).view(shape), parts, scale.to(x).view(shape))
    return changed.view_as(x)


@contextmanager
def normalising(
    layers: list[Any],
    moments: Callable[[Any, Tensor], Moments],
    scales: Callable[[Any, int], Scales] = scales_of,
) -> Iterator[None]:
    """Let each of the layers normalise by the statistics that `moments` finds for its input.

    Layers of torch's own classes also scale each group as `scales` says; others by their own.
    """

    def forward(layer: Any, x: Tensor) -> Tensor:
        layer._check_input_dim(x)
        found = moments(layer, x)
        groups = 1 if found[0].ndim == 1 else len(found[0])
        return normalised(layer, x, found, scales(layer, groups))

    def move(layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (moved(layer, inputs[0], *moments(layer, inputs[0])), *inputs[1:])

    fused = [m for m in layers if type(m) in FUSED and "forward" not in vars(m)]
    others = [m for m in layers if m not in fused]
    with ExitStack() as stack:
        stack.enter_context(hooked(others, move))
        for layer in fused:
            vars(layer)["forward"] = partial(forward, layer)
            stack.callback(vars(layer).pop, "forward")
        yield


@contextmanager
def setting(layers: list[Any], **settings: object) -> Iterator[None]:
    """Set attributes of the layers, and put their own back afterwards."""
    before = [{name: getattr(layer, name) for name in settings} for layer in layers]
    try:
        for layer in layers:
            vars(layer).update(settings)
        yield
    finally:
        for layer, own_settings in zip(layers, before, strict=True):
            vars(layer).update(own_settings)


@contextmanager
def hooked(layers: list[Any], hook: Callable[..., Any]) -> Iterator[None]:
    """Run `hook` before each of the layers."""
    handles = [layer.register_forward_pre_hook(hook) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
