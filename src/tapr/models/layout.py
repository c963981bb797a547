"""How kernels and images lie in memory: plane by plane (contiguous) or pixel by pixel.

Pixel by pixel (channels last) is the faster one for convolutions on many CPUs, but not for every
model and device: `probe` times both. The arithmetic is the same but for rounding, so nothing
here is done unasked: see docs/adr/0006-layout.md.
"""

from collections.abc import Hashable, Mapping
from statistics import median
from time import perf_counter
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from tapr.models.output import logits_of
from tapr.registry import Registry

Layout = Literal["kept", "probe", "channels_last", "contiguous"]
LAYOUTS = Registry("layout", {name: name for name in get_args(Layout)})
FORMATS: Mapping[Layout, torch.memory_format] = {
    "contiguous": torch.contiguous_format,
    "channels_last": torch.channels_last,
}
PIXELS = 2**16  # of the trial's images together: 64 images of 32 x 32
ROUNDS = 6  # the first of them warms up
PATIENCE = 20.0  # seconds of trial, after which two rounds are enough
_found: dict[Hashable, Layout] = {}


def arrange(model: nn.Module, layout: Layout) -> None:
    """Lay out the model's kernels as "channels_last" or "contiguous"; other names leave them."""
    if layout in FORMATS:
        for parameter in model.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=FORMATS[layout])


def matching(model: nn.Module, images: Tensor, layout: Layout = "kept") -> Tensor:
    """The images as `layout` says, else like the model's kernels: layers follow their input."""
    if layout == "contiguous":
        return images.contiguous()
    if any(p.ndim == 4 and not p.is_contiguous() for p in model.parameters()):
        images = images.contiguous(memory_format=torch.channels_last)
    return _survivable(model, images)


def _survivable(model: nn.Module, images: Tensor) -> Tensor:
    """Keep torch from crashing: its GroupNorm on a CPU does (2.13), in a backward over an input
    that is channels last and needs no gradient. With images that need one, every input does.
    """
    if images.is_contiguous() or images.device.type != "cpu":
        return images
    if not any(isinstance(layer, nn.GroupNorm) for layer in model.modules()):
        return images
    return images.detach().requires_grad_()


def probe(model: nn.Module, images: Tensor) -> Layout:
    """The quicker layout for this model on images like these, timed once in a process.

    The model is left in it. Nothing else of it changes: it runs as in evaluation mode.
    """
    key = _key(model, images)
    if key not in _found:
        _found[key] = _timed(model, images)
    arrange(model, _found[key])
    return _found[key]


def _key(model: nn.Module, images: Tensor) -> Hashable:
    shapes = tuple((n, p.shape, p.dtype, p.requires_grad) for n, p in model.named_parameters())
    threads = torch.get_num_threads()
    return type(model), shapes, images.shape[1:], str(images.device), threads


def _timed(model: nn.Module, images: Tensor) -> Layout:
    few = images[: max(1, PIXELS // (images.shape[2] * images.shape[3]))]
    spent, ratios = 0.0, list[float]()
    while len(ratios) < (2 if spent > PATIENCE else ROUNDS):
        plain, last = (_seconds(model, few, layout) for layout in FORMATS)
        spent += plain + last
        ratios.append(last / plain)  # of neighbours in time: a busy moment falls on both
    return "channels_last" if median(ratios[1:]) < 1 else "contiguous"


def _seconds(model: nn.Module, images: Tensor, layout: Layout) -> float:
    arrange(model, layout)
    started = perf_counter()
    _pass(model, matching(model, images, layout))
    return perf_counter() - started


def _pass(model: nn.Module, images: Tensor) -> None:
    """A forward, and a backward if any parameter moves, to the end of what the device does."""
    moving = [p for p in model.parameters() if p.requires_grad]
    with torch.set_grad_enabled(bool(moving)):
        value = logits_of(model.forward(images), len(images)).logsumexp(1).sum()
    if value.requires_grad:
        wanted = [*moving, images] if images.requires_grad else moving
        torch.autograd.grad(value, wanted, allow_unused=True)
    value.item()
