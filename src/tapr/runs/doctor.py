"""The pre-flight report on a model: what tapr finds, what it would adapt, what will not work."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from tapr import process
from tapr.adapters import Adapter
from tapr.errors import TaprError
from tapr.methods import adapt
from tapr.models import contract
from tapr.models.layout import probe
from tapr.models.scope import is_normalisation

_ASKED = ("mean", "std", "images", "preprocessing")  # `tapr.adapt`'s own, not the method's options
MUCH, NOTED = 1 << 22, 0.05  # bytes per batch, and their share of its time, that are worth a note
Level = Literal["fine", "note", "problem"]


class Finding(NamedTuple):
    """One sentence of a report."""

    level: Level
    text: str


class Report(NamedTuple):
    """The findings of `check`; it prints as plain sentences."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return all(finding.level != "problem" for finding in self.findings)

    def __str__(self) -> str:
        signs = {"fine": "ok     ", "note": "note   ", "problem": "PROBLEM"}
        return "\n".join(f"{signs[level]}  {text}" for level, text in self.findings)


def check(
    model: nn.Module, images: Tensor | None = None, /, method: str = "steady", **options: Any
) -> Report:
    """Report in plain words on adapting `model`; with `images`, also try them. Nothing is changed.

    The options are those of `tapr.adapt`, `mean`, `std`, `images` and `preprocessing` included.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    >>> print(check(model, torch.linspace(0.2, 0.8, 48).view(4, 3, 2, 2)))
    ok       2 parameter tensors, 65 numbers in all
    note     no normalisation layers: only votes and gradients can adapt this model
    ok       steady would move no parameter
    ok       cost per batch: 3 forward and 0 backward passes of all its images
    ok       images: batch of 4, 3 channels, 2 x 2, values from 0.2 to 0.8
    ok       the model returns logits for 5 classes
    ok       a batch like this takes about 1.44e-06 GFLOP and 0.0024 MiB
    """
    return Report(tuple(_findings(model, images, method, options)))


def _findings(
    model: nn.Module, images: Tensor | None, method: str, options: dict[str, Any]
) -> Iterator[Finding]:
    yield from _parameters(model)
    yield from _layers(model)
    try:
        adapter = adapt(model, method, **options)
    except TaprError as error:
        yield Finding("problem", f"{method} cannot adapt this model: {error}")
        return
    yield _adapted(model, adapter, method)
    yield from _contract(model, options)
    forward, backward = adapter.passes
    passes = f"{forward} forward and {backward} backward passes of all its images"
    yield Finding("fine", f"cost per batch: {passes}")
    if images is not None:
        yield from _trial(adapter, images)


def _parameters(model: nn.Module) -> Iterator[Finding]:
    parameters = list(model.parameters())
    numbers = sum(p.numel() for p in parameters)
    yield Finding("fine", f"{len(parameters)} parameter tensors, {numbers:,} numbers in all")
    frozen = sum(not p.requires_grad for p in parameters)
    if frozen:
        yield Finding("note", f"{frozen} parameter tensors are frozen and will not move")


def _layers(model: nn.Module) -> Iterator[Finding]:
    kinds = Counter(type(m).__name__ for m in model.modules() if is_normalisation(m))
    if kinds:
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        yield Finding("fine", f"normalisation layers: {found}")
    else:
        yield Finding(
            "note", "no normalisation layers: only votes and gradients can adapt this model"
        )
    batch_norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    if kinds and not batch_norms:
        yield Finding("note", "none of them is BatchNorm: there are no statistics to re-estimate")
    if any(m.running_mean is None for m in batch_norms):
        yield Finding("note", "BatchNorm without running statistics always uses the batch's own")
    dropout = sum(isinstance(m, _DropoutNd) for m in model.modules())
    if dropout:
        yield Finding("note", f"{dropout} dropout layers: they stay switched off")


def _adapted(model: nn.Module, adapter: Adapter, method: str) -> Finding:
    total = sum(p.numel() for p in model.parameters())
    moving = sum(p.numel() for p in adapter.parameters() if p.requires_grad)
    if not moving:
        return Finding("fine", f"{method} would move no parameter")
    share = "all" if moving == total else f"{moving:,} of"
    return Finding("fine", f"{method} would adapt {share} {total:,} parameters")


def _contract(model: nn.Module, options: dict[str, Any]) -> Iterator[Finding]:
    """Which normalisation applies, and whether the model's config is ignored."""
    asked = {key: options[key] for key in _ASKED if key in options}
    agreed = contract.agreed(model, **asked)
    if unused := contract.unused(model, agreed):
        yield Finding("note", unused)
    if agreed.mean is not None:
        given = "the images are normalised already" if agreed.images == "normalized" else "inside"
        table = agreed.table()
        yield Finding("fine", f"normalised by mean {table['mean']}, std {table['std']}: {given}")


def _trial(adapter: Adapter, images: Tensor) -> Iterator[Finding]:
    """Let the adapter, which holds a copy of the model, predict the images."""
    try:
        logits = adapter.predict(images).logits
        images = adapter.pixels(given := images)
    except TaprError as error:
        yield Finding("problem", str(error))
        return
    except Exception as error:
        shape = list(images.shape)
        yield Finding("problem", f"the model fails on images of shape {shape}: {error}")
        return
    batch, channels, height, width = images.shape
    size = f"batch of {batch}, {channels} channels, {height} x {width}"
    values = f", values from {given.min():.2g} to {given.max():.2g}" if given.numel() else ""
    yield Finding("fine", f"images: {size}{values}")
    yield Finding("fine", f"the model returns logits for {logits.shape[1]} classes")
    if batch:
        _, _, flops, memory = adapter.cost(images.shape)
        work = f"{flops / 1e9:.3g} GFLOP and {memory / 2**20:.3g} MiB"
        yield Finding("fine", f"a batch like this takes about {work}")
        yield from _layout(adapter, images)
        yield from _memory(adapter, images)
    yield from _suspicions(adapter, images, logits)


def _layout(adapter: Adapter, images: Tensor) -> Iterator[Finding]:
    """A note if another memory layout of the kernels is faster; the adapter's copy is tried."""
    kernels = [p for p in adapter.model.parameters() if p.ndim == 4 and p.shape[2:].numel() > 1]
    plain = any(not p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    if plain and probe(adapter.model, images) == "channels_last":
        yield Finding("note", "the layout of its kernels is slow here: pass layout='channels_last'")


def _memory(adapter: Adapter, images: Tensor) -> Iterator[Finding]:
    """A note if `keep_memory` would pay; the adapter's copy predicts the images once more."""
    fresh = process.fresh_memory(lambda: adapter(images))
    if fresh is not None and fresh.taken >= MUCH and fresh.share >= NOTED:
        yield Finding(
            "note",
            f"a batch takes {fresh.taken / 2**20:.0f} MiB from the system afresh, about"
            f" {fresh.share:.0%} of its time: call tapr.keep_memory() once, at the start",
        )


@torch.no_grad()
def _are_probabilities(adapter: Adapter, images: Tensor) -> bool:
    """Whether the model itself, without votes, returns rows that sum to 1."""
    rows = adapter.logits(images)
    return bool((rows >= 0).all()) and torch.allclose(rows.sum(1), rows.new_ones(()), atol=1e-3)


def _suspicions(adapter: Adapter, images: Tensor, logits: Tensor) -> Iterator[Finding]:
    if not len(images):
        return
    if not torch.isfinite(logits).all():
        yield Finding("problem", "the model's logits on these images are not finite")
    elif _are_probabilities(adapter, images):
        yield Finding(
            "problem",
            "the model returns probabilities, not logits: its rows sum to 1. Remove its softmax",
        )
    if adapter.refused:
        yield Finding(
            "problem", f"{adapter.refused} steps were refused: loss or gradient not finite"
        )
    batch_norms = any(isinstance(m, _BatchNorm) for m in adapter.model.modules())
    if batch_norms and len(images) < 16 and "window" not in adapter.policy:
        yield Finding(
            "note",
            f"batches of {len(images)} are small: below about 16 images the batch's statistics are"
            " poor; the method 'steady' counts images, not batches, and remembers earlier ones",
        )
