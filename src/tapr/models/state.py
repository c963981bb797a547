"""Copies of tensors: taken, put back in place, written to disk and read without running code."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from tapr.errors import InputError, StateError
from tapr.files import atomic

Tensors = Mapping[str, Tensor]
FLOATS = {torch.float32, torch.float64, torch.float16, torch.bfloat16}  # that can learn and predict
FORMAT = "tapr-state-1"


def oddity(tensor: Tensor) -> str:
    """What makes a tensor another thing than an array of numbers in memory; "" if nothing does.

    >>> oddity(torch.eye(2)), oddity(torch.eye(2).to_sparse())
    ('', 'of layout torch.sparse_coo')
    """
    if tensor.is_nested:
        return "nested"
    if tensor.layout != torch.strided:
        return f"of layout {tensor.layout}"
    if tensor.is_quantized:
        return "quantized"
    return "on the device 'meta', without values" if tensor.is_meta else ""


def snapshot(live: Tensors, storage: dict[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Copies of the live tensors, in the memory of `storage` where that fits."""
    storage = storage or {}
    copies, old, fresh = {}, [], []
    for name, tensor in live.items():
        place = storage.get(name)
        if place is not None and _alike(place, tensor):
            copies[name] = place
            old.append(place)
            fresh.append(tensor.detach())
        else:
            copies[name] = tensor.detach().clone()
    if old:
        torch._foreach_copy_(old, fresh)
    return copies


@torch.no_grad()
def restore(live: Tensors, saved: Tensors) -> None:
    """Put the saved values back into the live tensors, in place and bit for bit."""
    for name, tensor in live.items():
        tensor.copy_(saved[name])


def all_finite(tensors: list[Tensor]) -> bool:
    """Is every value of every tensor finite? One look at the device for all of them.

    >>> all_finite([torch.ones(2), torch.tensor([1.0, float("nan")])])
    False
    >>> all_finite([torch.tensor([3e38])])
    True
    """
    # The sum of squares is quicker than the maximum, but may overflow on finite values.
    norm = torch.nn.utils.get_total_norm
    return any(bool(torch.isfinite(norm(tensors, order))) for order in (2.0, float("inf")))


def _alike(a: Tensor, b: Tensor) -> bool:
    return (a.shape, a.dtype, a.device) == (b.shape, b.dtype, b.device)


def fingerprint(tensors: Tensors) -> str:
    """A hash of names, shapes and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def write(path: Path | str, tensors: Tensors, metadata: Mapping[str, object]) -> None:
    """Write tensors and metadata as one safetensors file, whole or not at all."""
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    with atomic(path) as part:
        try:
            # As bytes: `save_file` has a temporary file of its own, which a kill would leave.
            part.write_bytes(save(copies, {"format": FORMAT, "tapr": json.dumps(metadata)}))
        except (SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
            reason = getattr(error, "strerror", None) or error  # of a full disk, say
            raise StateError(f"cannot write {path}: {reason}") from error


def read(path: Path | str) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write` wrote: tensors and metadata."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"expected the path of a saved state, got {type(path).__name__}")
    if not Path(path).is_file():
        raise StateError(f"expected a saved state at {path}, found no file")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if header.get("format") != FORMAT:
                raise StateError(f"{path} is a safetensors file, but not a state saved by tapr")
            metadata = json.loads(header["tapr"])
            if not isinstance(metadata, dict):
                raise ValueError(f"expected names with values, got {type(metadata).__name__}")
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except StateError:
        raise
    except Exception as error:  # a damaged file raises whatever its reader stumbles over
        raise StateError(f"{path} is truncated or not a state saved by tapr: {error}") from error
