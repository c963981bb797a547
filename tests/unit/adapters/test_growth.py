"""A stream of any length needs the memory of its first batches."""

import gc
from pathlib import Path

import torch
from torch import Tensor, nn

import tapr
from tapr.augment import Identity

BATCHES = 500


def tensors() -> tuple[int, int]:
    """Tensors alive, and their bytes."""
    gc.collect()
    alive = [thing for thing in gc.get_objects() if type(thing) in (Tensor, nn.Parameter)]
    return len(alive), sum(tensor.numel() * tensor.element_size() for tensor in alive)


def resident() -> int:
    """Bytes of memory in use, where the system says."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def test_nothing_grows_over_500_batches(model: nn.Module) -> None:
    adapter = tapr.adapt(model, "pest", steps=1, augmentation=Identity())
    batch = torch.rand(16, 3, 10, 9, generator=torch.Generator().manual_seed(0))
    for _ in range(50):
        adapter.predict(batch)
    known, size = tensors(), resident()
    for _ in range(BATCHES - 50):
        adapter.predict(batch)
    assert tensors() == known
    assert resident() - size < 8 * 2**20  # one batch's views kept each time would be 23 MiB
