"""Which parameters may move. A scope is a predicate over (name, parameter)."""

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import takewhile

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
    return _of(model, lambda place, layer: is_normalisation(layer))


def batch_norm(model: nn.Module) -> Scope:
    """Scale and shift of the BatchNorm2d layers alone: EATA's released code."""
    return _of(model, lambda place, layer: isinstance(layer, nn.BatchNorm2d))


def lower_norm(model: nn.Module) -> Scope:
    """Normalisation layers below the top quarter of the blocks: SAR's choice for any model.

    That is `layer4` of a ResNet and the last three of twelve transformer blocks, with whatever
    normalisation follows them. A model without numbered blocks has no top: all of its layers count.
    """
    places = [place for place, layer in model.named_modules() if is_normalisation(layer)]
    depth = _shared(places)  # of wrappers around the model
    inner = [".".join(place.split(".")[depth:]) for place in places]
    blocks = [re.match(r"(.*?)(\d+)\.", place) for place in inner]  # layer4.0.bn1: layer, 4
    stems = Counter(block[1] for block in blocks if block)
    if not stems:
        return normalisation(model)
    stem = stems.most_common(1)[0][0]
    numbers = [int(b[2]) if b and b[1] == stem else None for b in blocks]
    distinct = sorted({number for number in numbers if number is not None})
    first_of_top = distinct[-math.ceil(len(distinct) / 4)]
    below = places[: numbers.index(first_of_top)]
    if not below:
        raise ModelError(
            "expected normalisation layers below the top quarter of the model's blocks, and found"
            " none; scope='norm' takes those of all blocks"
        )
    return _of(model, lambda place, layer: place in below)


def named_norm(model: nn.Module) -> Scope:
    """Normalisation layers outside `layer4`, `blocks.9` to `.11` and `norm`: SAR's released code.

    In a model whose parts have other names nothing is left out.
    """

    def is_inside(place: str, layer: nn.Module) -> bool:
        top = re.search(r"layer4|blocks\.(9|10|11)|norm\.|^norm$", place)
        return is_normalisation(layer) and not top

    return _of(model, is_inside)


def _shared(places: list[str]) -> int:
    """How many leading names all places share."""
    split = [place.split(".")[:-1] for place in places]
    columns = zip(*split, strict=False)
    return sum(1 for _ in takewhile(lambda names: len(set(names)) == 1, columns))


def _of(model: nn.Module, is_inside: Callable[[str, nn.Module], bool]) -> Scope:
    """The parameters of those layers that are inside, by their place and themselves."""
    names = {
        f"{place}.{name}" if place else name
        for place, layer in model.named_modules()
        if is_inside(place, layer)
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
    "scope",
    {
        **{"all": everything, "norm": normalisation, "backbone": backbone},
        **{"batch_norm": batch_norm, "lower_norm": lower_norm, "named_norm": named_norm},
    },
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
