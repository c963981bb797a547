"""Which parameters may move. A scope is a predicate over (name, parameter)."""

import re
from collections.abc import Callable

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from tapr.errors import InputError, ModelError
from tapr.models import head
from tapr.models.state import FLOATS
from tapr.registry import Registry

Scope = Callable[[str, nn.Parameter], bool]

NORMALISATIONS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def everything(model: nn.Module) -> Scope:
    """All parameters: the paper's choice."""
    return lambda name, parameter: True


def normalisation(model: nn.Module) -> Scope:
    """Scale and shift of the normalisation layers: Tent's choice."""
    names = {
        f"{prefix}.{name}" if prefix else name
        for prefix, layer in model.named_modules()
        if is_normalisation(layer)
        for name, _ in layer.named_parameters(recurse=False)
    }
    return lambda name, parameter: name in names


def backbone(model: nn.Module) -> Scope:
    """Everything but the head: the last linear layer, or the last convolution if there is none."""
    found = head.find(model)
    if found is None:
        raise ModelError(
            "scope 'backbone' leaves out the head, the last linear or convolution layer, and this"
            " model has neither; pass a predicate of (name, parameter) instead"
        )
    return lambda name, parameter: name.rpartition(".")[0] != found


def is_normalisation(layer: nn.Module) -> bool:
    """Is this layer a normalisation, ours or a library's own (by its class's name)?"""
    named_so = re.search(r"norm(act)?(\dd)?$", type(layer).__name__, re.IGNORECASE)
    return isinstance(layer, NORMALISATIONS) or named_so is not None


SCOPES: Registry[Callable[[nn.Module], Scope]] = Registry(
    "scope", {"all": everything, "norm": normalisation, "backbone": backbone}
)


def select(model: nn.Module, scope: Scope) -> dict[str, nn.Parameter]:
    """The parameters in scope that the caller has not frozen; an error when there are none.

    >>> list(select(nn.BatchNorm2d(3), lambda name, parameter: name == "bias"))
    ['bias']
    """
    try:
        inside = {name: p for name, p in model.named_parameters() if scope(name, p)}
    except Exception as error:
        raise InputError(
            f"expected scope to be a predicate of (name, parameter), and it failed: {error!r}"
        ) from error
    trainable = {name: p for name, p in inside.items() if p.requires_grad}
    if not trainable:
        total = sum(1 for _ in model.parameters())
        why = (
            f"all {len(inside)} of them are frozen (requires_grad=False); unfreeze what should move"
            if inside
            else f"none of the model's {total} parameters is in scope; choose another scope"
        )
        raise ModelError(f"expected trainable parameters in scope, but {why}")
    for name, parameter in trainable.items():
        if parameter.dtype not in FLOATS:
            raise ModelError(
                f"expected parameters in scope of float16 to float64, but {name!r} is of"
                f" {parameter.dtype}; freeze it (requires_grad=False), or choose another scope"
            )
    return trainable
