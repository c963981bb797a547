"""Prepares a batch that processes share: all adapters are brought to the same state."""

import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tapr.errors import InputError, ModelError, SyncError, TaprError
from tapr.sync import Batch, Group, Sync, exchanged

if TYPE_CHECKING:
    from tapr.adapters.adapter import Adapter

log = logging.getLogger("tapr")
WRAPPERS = ("DistributedDataParallel", "DataParallel")
WHOLE = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # numbers by their size in bytes
SHARDED = ("FullyShardedDataParallel", "FSDPModule")


def check(sync: Sync) -> None:
    """Refuse what is neither "auto" nor False."""
    if sync != "auto" and sync is not False:
        raise InputError(f"expected sync to be 'auto' or False, got {sync!r}")


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a wrapper for training on many devices; an error says what to do."""
    while type(model).__name__ in WRAPPERS and isinstance(model.module, nn.Module):
        model = model.module
    layers = model.modules() if isinstance(model, nn.Module) else ()
    if any(_is_sharded(layer) for layer in layers):
        raise ModelError(
            "expected a model whose parameters are whole in every process, got one that FSDP"
            " shards; make the model again, load its full state dict into it, and adapt that:"
            " processes adapt together without a wrapper"
        )
    return model


def _is_sharded(layer: nn.Module) -> bool:
    """Whether FSDP, of either version, holds the parameters of this layer."""
    named = any(base.__name__ in SHARDED for base in type(layer).__mro__)
    return named or getattr(layer, "_is_fsdp_managed_module", False) is True


def bare(adapter: "Adapter", wrapper: str = "FSDP") -> None:
    """Refuse a wrapper around an adapter: it would manage its parameters or gradients."""
    if wrapper != "FSDP" or _is_sharded(adapter):
        raise InputError(
            f"expected the adapter without {wrapper} around it: processes of a group adapt together"
            " by themselves, a wrapper is not needed; call the adapter itself, made from the model"
        )


def gathered(adapter: "Adapter", group: Group, images: Tensor) -> tuple[Tensor, Batch]:
    """The images of all processes, or only our own if the method needs no others.

    All adapters must be the same. If they are not, all take the state of the first process.
    """
    bare(adapter)
    assert adapter.source is not None  # remembered before anything moves
    device = next(adapter.model.parameters(), torch.empty(0)).device
    try:
        checked: Tensor | InputError = adapter.pixels(images)
    except InputError as error:
        checked = error
    counts, same = exchanged(group, checked, mark(adapter), device)
    assert isinstance(checked, Tensor)
    if not same:
        if group.rank == 0:
            log.warning("the processes differ: all take the state of the first")
        level(adapter, group, device)
    batch = Batch(group, counts, adapter.only_own)
    whole = not adapter.only_own and batch.images
    return (group.rows(checked, counts) if whole else checked), batch


def mark(adapter: "Adapter") -> int:
    """A number that two adapters share if they are the same, bit for bit."""
    total = 0 if adapter.batches else int(adapter._fingerprint()[:15], 16)
    for tensor in adapter.live().values():
        bits = tensor.detach().contiguous().flatten()
        total += int(bits.view(WHOLE.get(tensor.itemsize, torch.uint8)).sum())
    return total % 2**62


def level(adapter: "Adapter", group: Group, device: torch.device) -> None:
    """Give every process the state of the first one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        if group.rank == 0:
            adapter.save(path)
        path.write_bytes(group.first(path.read_bytes() if group.rank == 0 else None, device))
        trouble = None
        if group.rank:
            try:
                adapter.load(path)
            except TaprError as error:
                trouble = error
        if not group.all(trouble is None, device):
            raise SyncError(
                "expected the same model, method and options in all processes, got different ones;"
                " make the adapter in the same way in each of them"
            ) from trouble
