"""What a method, and every adapter, needs of a model; checked when the adapter is made."""

from copy import deepcopy
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from tapr.errors import InputError, ModelError
from tapr.models import head, transformer
from tapr.models.state import oddity


class Needs(NamedTuple):
    """The needs of a method, each with the reason in words; "" for what it does not need."""

    batch_norm: str = ""
    features: str = ""
    source_images: str = ""
    rotation_head: str = ""
    transformer: str = ""


def check_model(model: nn.Module, needs: Needs) -> None:
    """Refuse a model that cannot be adapted, or lacks what a method needs."""
    if not isinstance(model, nn.Module):
        raise ModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
    if torch.is_inference_mode_enabled():
        raise InputError("expected the adapter to be made outside torch.inference_mode()")
    layers = list(model.modules())
    if any(isinstance(layer, torch.jit.ScriptModule) for layer in layers):
        raise ModelError(
            "expected a model of Python modules, got one that torch.jit scripted or traced,"
            " whose layers cannot be reached; pass the model it was made from"
        )
    if any(hasattr(layer, "_orig_mod") for layer in layers):
        raise ModelError(
            "expected the model itself, got one that torch.compile compiled, which does not see"
            " what an adapter changes; pass the model it was made from, and compile=True"
        )
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(tensor):
            raise ModelError(
                f"expected a complete model, but {name!r} is made by its first forward pass:"
                " run that before"
            )
        if oddity(tensor):
            raise ModelError(f"expected a model of plain tensors, but {name!r} is {oddity(tensor)}")
    if needs.batch_norm and not any(isinstance(layer, _BatchNorm) for layer in layers):
        raise ModelError(
            f"expected a model with BatchNorm layers, {needs.batch_norm}, and found none; methods"
            " that learn adapt models with other or no normalisation"
        )
    if needs.features:
        head.linear(model)
    if needs.rotation_head and not callable(getattr(model, "rotation", None)):
        raise ModelError(
            f"expected a model with a rotation head, {needs.rotation_head}, as a method"
            " rotation(images) that returns logits [B, 4], and found none; the other methods need"
            " none"
        )
    if needs.transformer:
        transformer.find(model)


def copied(model: nn.Module) -> nn.Module:
    """A copy of the model; an error says why it cannot be copied."""
    try:
        return deepcopy(model)
    except Exception as error:
        raise ModelError(
            f"the model cannot be copied ({error}); pass inplace=True to adapt it itself"
        ) from error


def own_memory(model: nn.Module) -> None:
    """Give every element of every buffer its own memory, so that it can be restored."""
    for buffer in model.buffers():
        if 0 in buffer.stride():  # expanded
            buffer.data = buffer.data.contiguous()
