"""The classifier head: the last linear layer, found in one place; its input are the features."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import Tensor, nn

from tapr import sync
from tapr.errors import ModelError
from tapr.registry import suggest

LAYERS = ((nn.Linear,), (nn.Conv1d, nn.Conv2d, nn.Conv3d))


def find(model: nn.Module) -> str | None:
    """The name of the last linear layer, or of the last convolution if there is none.

    >>> find(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 5)))
    '2'
    """
    for kinds in LAYERS:
        names: list[str] = [
            name for name, layer in model.named_modules() if isinstance(layer, kinds)
        ]
        if names:
            return names[-1]
    return None


def linear(model: nn.Module, name: str | None = None) -> str:
    """The name of the linear layer that is the head, found or given; a sentence without one."""
    known: list[str] = [
        place for place, layer in model.named_modules() if isinstance(layer, nn.Linear)
    ]
    if name is None:
        if not known:
            raise ModelError(
                "expected a model with a linear layer, whose input are the features that this"
                " method needs, and found none"
            )
        return known[-1]
    if name not in known:
        raise ModelError(
            f"expected head to name a linear layer of the model, got {name!r}; "
            + (suggest(name, known) if known else "it has none")
        )
    return name


def restricted(model: nn.Module, outputs: Sequence[int]) -> nn.Module:
    """A copy of the model whose head has only these outputs, in this order."""
    made = deepcopy(model)
    place = linear(made)
    old = made.get_submodule(place)
    assert isinstance(old, nn.Linear)
    new = nn.Linear(old.in_features, len(outputs), bias=old.bias is not None).to(old.weight)
    with torch.no_grad():
        new.weight.copy_(old.weight[list(outputs)])
        if old.bias is not None:
            new.bias.copy_(old.bias[list(outputs)])
    made.set_submodule(place, new)
    return made.eval()


@contextmanager
def features(head: nn.Linear) -> Iterator[list[Tensor]]:
    """Collect what goes into the head during a forward."""
    seen: list[Tensor] = []
    handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(sync.whole(inputs[0])))
    try:
        yield seen
    finally:
        handle.remove()


def only(seen: list[Tensor], rows: int) -> Tensor:
    """The features [rows, D] of one forward, or a sentence why they are not those of a head."""
    if len(seen) != 1 or seen[0].ndim != 2 or len(seen[0]) != rows:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in seen) or "nothing"
        raise ModelError(
            f"expected the head to be called once, with features [{rows}, D], got {shapes}; name"
            " the layer that makes the logits: head='...'"
        )
    return seen[0]
