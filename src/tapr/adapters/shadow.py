"""Runs the source model on the same images as the adapted one, without a second model in memory.

Three views of every image vote, as in `steady`: the original one with the source model itself, the
other two with anchored statistics. No gradient has changed these voters, so that they can judge the
adapted model (the witness), and their vote is an answer to fall back on.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from tapr import sync
from tapr.adapters.checks import explained
from tapr.adapters.votes import Votes
from tapr.models import shared
from tapr.models.policies import Shift
from tapr.models.statistics import Statistics
from tapr.models.windows import Window
from tapr.sync import Share

if TYPE_CHECKING:
    from tapr.adapters.adapter import Adapter

# What `steady` has as defaults.
VOTERS = ("original", "flip", "smooth")
STATISTICS = Statistics("window", share=(1.0, 0.3, 0.5), prior=16.0, window=1000.0)
ALONE = 0.5  # with more trust than this, the source model answers alone
LOOKED_AT = 16  # how many images of a batch are compared at every layer


class Said(NamedTuple):
    """The predictions of the source model and of the other voters."""

    source: Tensor  # [B, K] logits of the source model
    witness: Tensor  # [B, K] probabilities of the other voters
    answer: Tensor  # [B, K] logits of the vote, or of the source model where it is trusted alone
    views: float  # the probability that two of the other voters agree
    shift: Shift | None  # the shift of the stream, as the source model sees it
    trusted: float = 0.0  # trust in the source model alone: 1 for known images of one class
    layers: tuple[float, ...] = ()  # nats between the images and the stored statistics, by layer


class _Votes(Votes):
    """Votes that also record the trust in the source model alone, for the present batch."""

    trusted: Tensor | float = 0.0

    def trust(self, p: Tensor, nats: Tensor) -> Tensor:
        self.trusted = super().trust(p, nats)
        return self.trusted


class Shadow(nn.Module):
    """Runs the source model, and remembers the stream as `steady` does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.norms = Window(model, STATISTICS)
        self.votes = _Votes(VOTERS, "information", STATISTICS.window)

    @torch.no_grad()
    def forward(self, adapter: "Adapter", images: Tensor, share: Share | None = None) -> Said:
        """Predict images with the source model; only this module's own memory changes."""
        self.norms.begin()

        def vote(voter: int) -> Tensor:  # one after the other: all views at once need more memory
            with self.norms.predicting(1, voter):
                return ask(adapter, self.votes.view(voter, images), share)

        with _layers(self.norms.tracking, share.images if share else len(images)) as seen:
            source = vote(0)
        logits = torch.stack([source, *map(vote, range(1, len(VOTERS)))])
        if self.norms.forgets(self.votes.mixed(logits)):
            self.votes.forget()
            logits = torch.stack([*map(vote, range(len(VOTERS)))])
        shift = self.norms.shift()
        answer, trusted = self.votes(logits, shift), float(self.votes.trusted)
        found = said(logits, logits[0] if trusted > ALONE else answer, shift, trusted)
        return found._replace(layers=_nats(seen, share))


def said(logits: Tensor, answer: Tensor, shift: Shift | None, trusted: float = 0.0) -> Said:
    """The predictions of voters [V, B, K], of which the first is the source model."""
    p = logits.float().softmax(2)
    others = p[1:]
    same = torch.einsum("vbk,wbk->vw", others, others) / max(others.shape[1], 1)
    pairs = max(len(others) * (len(others) - 1), 1)
    views = float((same.sum() - same.trace()) / pairs)
    return Said(logits[0], others.mean(0).lerp(p[0], trusted), answer, views, shift, trusted)


@contextmanager
def _layers(layers: Sequence[Any], images: int) -> Iterator[list[tuple[Tensor, ...]]]:
    """A context that collects what `look` finds at each layer for the first images."""
    found: list[tuple[Tensor, ...]] = []

    def hook(layer: Any, inputs: tuple[Tensor, ...]) -> None:
        found.append(look(layer, sync.beginning(inputs[0], min(images, LOOKED_AT))))

    handles = [layer.register_forward_pre_hook(hook) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def look(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """The mean and variance of a layer's input, those of the source, and eps."""
    x = x.to(layer.running_mean)
    own = torch.batch_norm_update_stats(x, None, None, 0.0)
    return *own, layer.running_mean, layer.running_var, x.new_full((), layer.eps)


def _nats(found: list[tuple[Tensor, ...]], share: Share | None) -> tuple[float, ...]:
    """Kullback-Leibler divergence of normal distributions, the mean over a layer's channels."""
    if not found:
        return ()
    sizes = [len(moments[0]) for moments in found]
    mean, variance, source_mean, source_variance = (
        torch.cat([moments[n] for moments in found]) for n in range(4)
    )
    if share is not None:
        mean, variance = share.moments(mean, variance, share.among(LOOKED_AT))
    eps = torch.stack([moments[4] for moments in found]).repeat_interleave(
        torch.tensor(sizes, device=mean.device)
    )
    known = source_variance + eps
    ratio = (variance + eps) / known
    nats = 0.5 * (ratio - 1 - ratio.log() + (mean - source_mean).square() / known)
    return tuple(torch.stack([part.mean() for part in torch.split(nats, sizes)]).tolist())


@torch.no_grad()
def ask(adapter: "Adapter", images: Tensor, share: Share | None = None) -> Tensor:
    """The source model's logits [B, K]; neither the adapter nor torch's generators move."""
    model, device = adapter.model, images.device
    devices = [device] if device.type == "cuda" else []
    with explained(images, model), as_source(adapter), torch.random.fork_rng(devices):
        return shared.logits(model, images, adapter.layout, share)[0]


@contextmanager
def as_source(adapter: "Adapter") -> Iterator[None]:
    """A context in which the adapter's model has the source model's parameters and buffers.

    Changes of buffers by a forward are undone at the end; parameters are swapped without a copy.
    """
    source = adapter.source.tensors
    parameters: list[tuple[nn.Parameter, Tensor]] = []
    buffers: list[tuple[nn.Module, dict[str, Tensor | None]]] = []
    try:
        for prefix, module in adapter.model.named_modules(prefix="model"):
            for key, parameter in module._parameters.items():
                name = f"{prefix}.{key}"
                if parameter is not None and name in source:
                    parameters.append((parameter, parameter.data))
                    parameter.data = source[name].to(parameter)
            buffers.append((module, dict(module._buffers)))
            for key, buffer in module._buffers.items():
                if buffer is not None:
                    value = source.get(f"{prefix}.{key}", buffer)
                    fits = value.shape == buffer.shape
                    module._buffers[key] = (value.to(buffer) if fits else buffer).clone()
        yield
    finally:
        for parameter, data in reversed(parameters):
            parameter.data = data
        for module, before in buffers:
            module._buffers.clear()
            module._buffers.update(before)
