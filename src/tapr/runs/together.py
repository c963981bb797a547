"""Runs that torchrun started in several processes: all adapt together, and the first one writes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
from torch import distributed

from tapr import sync
from tapr.adapters import Adapter
from tapr.adapters.syncing import level
from tapr.errors import InputError
from tapr.runs.device import AUTO
from tapr.runs.store import Journal
from tapr.types import Prediction

VARIABLE = "TAPR_SYNC_SECONDS"  # how many seconds processes wait for each other
SECONDS = "300"


def processes() -> int:
    """How many processes torchrun has started; 1 if it has not."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def is_first() -> bool:
    """Whether this is the process that writes and prints."""
    group = sync.group()
    if group is not None:
        return group.rank == 0
    return processes() == 1 or os.environ["RANK"] == "0"


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Join the processes that torchrun started into a group; does nothing without torchrun."""
    if processes() == 1:
        yield
        return
    seconds = os.environ.get(VARIABLE, SECONDS)
    if not seconds.isdigit() or seconds == "0":
        raise InputError(f"expected {VARIABLE} as whole seconds above 0, got {seconds!r}")
    on_gpu = torch.cuda.is_available() if device == AUTO else device.startswith("cuda")
    if on_gpu:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo", timeout=timedelta(seconds=int(seconds))
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def resumed(journal: Journal, adapter: Adapter, device: str) -> int | None:
    """Return adapter and file to where the run stopped; return the batches done, None if all.

    Only the first process reads the file; the others take its state.
    """
    group = sync.group()
    if group is None:
        return None if journal.finished else journal.resume(adapter)
    place = torch.device(device)
    done = b""
    if group.rank == 0 and not journal.finished:
        done = str(journal.resume(adapter)).encode()
    done = group.first(done, place)
    if not done:
        return None
    level(adapter, group, place)
    return int(done)


def predicted(adapter: Adapter, images: torch.Tensor) -> Prediction:
    """Predict a batch that every process has; each process gives its share to the adapter."""
    group = sync.group() if adapter.sync else None
    if group is None:
        return adapter.predict(images)
    counts = group.even(len(images))
    prediction = adapter.predict(torch.split(images, list(counts))[group.rank])
    return prediction._replace(logits=group.rows(prediction.logits, counts))
