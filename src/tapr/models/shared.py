"""A forward that many processes share: each runs its rows, and batch norm sees all of them."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tapr import sync
from tapr.errors import ModelError
from tapr.models.layout import Layout, matching
from tapr.models.moments import FUSED, biased, hooked, moved, setting
from tapr.models.output import Answers, answers, logits_of
from tapr.sync import Share

PLAIN = (*FUSED, nn.SyncBatchNorm)


def logits(
    model: nn.Module, images: Tensor, layout: Layout, share: Share | None
) -> tuple[Tensor, Answers]:
    """Run the model on images and find the logits [B, K]; on those of this process, if shared.

    Beside them: how to answer as the model does.
    """
    own = images if share is None else share.own(images)
    given = matching(model, own, layout).clone()  # which the model may write into
    if share is None:
        output = model(given)
        return logits_of(output, len(given)), answers(output)
    with share.running(), _meeting(model):
        output = model(given)
        return share.whole(logits_of(output, len(given))), answers(output)


@contextmanager
def _meeting(model: nn.Module) -> Iterator[None]:
    """Let batch-norm layers that would take the statistics of their rows take those of all."""
    with ExitStack() as stack:
        for name, layer in model.named_modules():
            if not isinstance(layer, _BatchNorm) or "forward" in vars(layer):
                continue
            tracks = layer.running_mean is not None
            if tracks and not layer.training:
                continue
            if type(layer) in PLAIN:
                vars(layer)["forward"] = partial(_normalised, layer)
                stack.callback(vars(layer).pop, "forward")
            elif tracks:
                stack.enter_context(hooked([layer], _moved))
                stack.enter_context(setting([layer], training=False))
            else:
                raise ModelError(
                    f"expected batch norm of torch's own, or with running statistics, got {name!r},"
                    f" a {type(layer).__name__} whose statistics processes cannot share; pass"
                    " sync=False for independent streams"
                )
        yield


def _normalised(layer: Any, x: Tensor) -> Tensor:
    """What torch's own layer makes of `x`, by the statistics of all processes."""
    share = sync.share()
    assert share is not None
    values = x.numel() // (len(x) * x.shape[1]) * sync.rows(x)
    with torch.no_grad():
        own = torch.batch_norm_update_stats(x.to(_exact(x)), None, None, 0.0)
        mean, variance = sync.moments(*own)
    if values == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got {x.shape}")
    if layer.training and layer.track_running_stats and layer.running_mean is not None:
        _move(layer, mean.detach(), variance.detach() * (values / (values - 1)))
    weight = mean.new_ones(len(mean)) if layer.weight is None else layer.weight
    bias = mean.new_zeros(len(mean)) if layer.bias is None else layer.bias
    given = x, weight.to(mean), bias.to(mean), mean, variance, layer.eps, values, share
    found: Tensor = _Normalise.apply(*given)  # type: ignore[no-untyped-call]
    return found


def _exact(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


class _Normalise(torch.autograd.Function):
    """Normalisation by statistics of all processes, through which the gradient flows, too.

    Both ways go by the kernels of torch's own layer for given statistics. Those depend on every
    image: their part of the gradient is the sum over the processes of two numbers for a channel.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        variance: Tensor,
        eps: float,
        values: int,
        share: Share,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, variance)
        ctx.eps, ctx.values, ctx.share = eps, values, share
        return nn.functional.batch_norm(x, mean, variance, weight, bias, eps=eps)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, variance = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], True, True]
        by_x, by_weight, by_bias = torch.ops.aten.native_batch_norm_backward(
            slope, x, weight, mean, variance, None, None, False, ctx.eps, wanted
        )
        if ctx.needs_input_grad[0]:
            sums = ctx.share.group.sum(torch.stack([by_weight, by_bias])) / ctx.values
        if ctx.needs_input_grad[0] and ctx.share.count:  # an image that stands in counts nowhere
            scale = (variance + ctx.eps).rsqrt()
            tilt = -weight * scale.square() * sums[0]
            level = -weight * scale * sums[1] - tilt * mean
            shape = (1, -1) + (1,) * (x.ndim - 2)
            by_x = by_x.add_(level.to(x).view(shape)).addcmul_(x, tilt.to(x).view(shape))
        return by_x, by_weight, by_bias, None, None, None, None, None


def _moved(layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The same for a layer with a forward of its own, in evaluation mode by now."""
    x = inputs[0]
    mean, variance = (part.to(layer.running_mean) for part in biased(x))
    if layer.track_running_stats:
        values = x.numel() // (len(x) * x.shape[1]) * sync.rows(x)
        _move(layer, mean.detach(), variance.detach() * (values / max(values - 1, 1)))
    return (moved(layer, x, mean, variance), *inputs[1:])


@torch.no_grad()
def _move(layer: Any, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, as torch does; a graph may still need the old ones."""
    if layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
    momentum = layer.momentum
    if momentum is None:
        momentum = 1 / float(layer.num_batches_tracked)
    layer.running_mean = layer.running_mean * (1 - momentum) + mean * momentum
    layer.running_var = layer.running_var * (1 - momentum) + variance * momentum
