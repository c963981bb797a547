"""Estimates the cost of a batch before it comes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tapr.errors import InputError
from tapr.models.layout import matching
from tapr.models.output import logits_of


class Passes(NamedTuple):
    """The cost of a method: images through the model, for each image predicted."""

    forward: int
    backward: int


class Cost(NamedTuple):
    """The estimated cost of a batch; an upper bound where a step may be skipped."""

    forward: int  # images through the model
    backward: int
    flops: int  # of convolutions and matrix products; a multiply-add counts as two
    memory: int  # bytes at the peak, besides the model itself and the images


class Sizes(NamedTuple):
    """How much a method holds in memory at a time."""

    together: int  # images, with views, that are made for each image of the batch
    copies: int  # how many copies of these exist while they are made
    alone: bool  # whether each image of the batch goes through the model on its own
    kept: int  # bytes for the guard, the optimiser and the rollback


def predicted(model: nn.Module, passes: Passes, shape: Sequence[int], sizes: Sizes) -> Cost:
    """The cost of a batch of `shape` [B, C, H, W], measured on one image of it.

    The peak comes while the views are made, or while they go through the model.
    """
    if len(shape) != 4 or min(shape) < 1:
        raise InputError(f"expected the shape [B, C, H, W] of a batch, got {list(shape)}")
    moving = [p for p in model.parameters() if p.requires_grad and passes.backward]
    reference = next(model.parameters(), torch.empty(0))
    image = reference.new_zeros(1, *shape[1:])
    one = _measured(model.eval(), image, moving)
    images = shape[0]
    views = images * sizes.together * image.nbytes if sizes.together > 1 else 0
    at_once = sizes.together * (1 if sizes.alone else images)
    passing = views + at_once * one.between + sum(p.nbytes for p in moving)
    return Cost(
        forward=passes.forward * images,
        backward=passes.backward * images,
        flops=images * (passes.forward * one.forward + passes.backward * one.backward),
        memory=max(sizes.copies * views, passing) + sizes.kept,
    )


class _One(NamedTuple):
    """The FLOPs of a forward and a backward of one image, and the bytes kept between them."""

    forward: int
    backward: int
    between: int


def _measured(model: nn.Module, image: Tensor, moving: list[nn.Parameter]) -> _One:
    saved: dict[int, int] = {}  # by address, since several layers may keep the same tensor
    outputs = [0]

    def save(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    def note(module: object, inputs: object, output: object) -> None:
        outputs.append(output.nbytes if isinstance(output, Tensor) else 0)

    image = matching(model, image)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), image)}
    forward, backward = (FlopCounterMode(display=False) for _ in range(2))
    hooks = [layer.register_forward_hook(note) for layer in model.modules() if layer is not model]
    try:
        with (
            torch.set_grad_enabled(bool(moving)),
            torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
            forward,
        ):
            logits = logits_of(model.forward(image), 1)
    finally:
        for hook in hooks:
            hook.remove()
    if logits.requires_grad:
        with backward:
            wanted = [*moving, image] if image.requires_grad else moving
            torch.autograd.grad(logits.sum(), wanted, allow_unused=True)
    kept = sum(size for place, size in saved.items() if place not in own)
    # Without a backward, only one layer's input and output are in memory at a time.
    return _One(forward.get_total_flops(), backward.get_total_flops(), kept or 2 * max(outputs))
