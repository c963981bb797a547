"""The second process of `test_sync.py`, and the first: what must not go wrong between the two.

python -m tests.unit.sync_worker FOLDER RANK
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import tapr
from tapr.adapters.syncing import mark
from tapr.sync import Group
from tapr.testing import small_model

RANK = int(sys.argv[2]) if __name__ == "__main__" else 0
SECONDS = 4  # after which processes stop waiting for each other


def images(count: int = 3) -> Tensor:
    noise = torch.rand(count, 3, 10, 9, generator=torch.Generator().manual_seed(5 + RANK))
    return (noise + noise.roll(1, 3)) / 2


def said(function: Callable[[], object]) -> str:
    """The sentence with which a call ends."""
    try:
        function()
    except tapr.TaprError as error:
        return str(error)
    return "nothing"


def equal(adapter: tapr.Adapter) -> bool:
    marks = Group(RANK, 2).gather(torch.tensor([mark(adapter)]))
    return bool(marks[0] == marks[1])


def wrappers() -> None:
    model = small_model()
    assert type(tapr.adapt(DistributedDataParallel(model)).model) is nn.Sequential
    assert "wrapper" in said(lambda: DistributedDataParallel(tapr.adapt(model, "tent")))
    sharded = small_model()
    fully_shard(sharded)
    assert "full state dict" in said(lambda: tapr.adapt(sharded))
    adapter = tapr.adapt(model, "tent")
    fully_shard(adapter)
    assert "wrapper" in said(lambda: adapter(images()))


def independent_streams() -> None:
    adapter = tapr.adapt(small_model(), "tent", sync=False)
    adapter(images())
    assert not equal(adapter)


def a_refused_share() -> None:
    adapter = tapr.adapt(small_model(), "tent")
    before = mark(adapter)
    expected = "got maximum" if RANK else "process 1 refused its own"
    assert expected in said(lambda: adapter(images() * (255 if RANK else 1)))
    assert mark(adapter) == before
    assert "of one size" in said(lambda: adapter(images()[..., RANK:]))
    assert len(adapter(images(2 * RANK))) == 2 * RANK
    assert len(adapter(images(0))) == 0
    assert equal(adapter)


def a_reset_in_one_process() -> None:
    adapter = tapr.adapt(small_model(), "tent")
    adapter(images())
    if RANK:
        adapter.reset()
    assert not equal(adapter)
    adapter(images())
    assert equal(adapter)


def other_models() -> None:
    model = small_model()
    if RANK:
        nn.init.zeros_(next(model.parameters()))
    assert "the same model" in said(lambda: tapr.adapt(model, "tent")(images()))


def a_process_that_hangs_or_dies(folder: Path) -> None:
    adapter = tapr.adapt(small_model(), "tent")
    adapter(images())
    if RANK:
        os.kill(os.getpid(), signal.SIGSTOP if folder.name == "hangs" else signal.SIGKILL)
    before, began = mark(adapter), time.monotonic()
    assert "one has ended or hangs" in said(lambda: adapter(images()))
    assert time.monotonic() - began < 60
    assert mark(adapter) == before
    adapter.save(folder / "state")
    assert tapr.load(folder / "state", small_model()).batches == 0


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=RANK,
        world_size=2,
        timeout=timedelta(seconds=SECONDS if folder.name == "hangs" else 300),
    )
    if folder.name == "dies":
        wrappers()
        independent_streams()
        a_refused_share()
        a_reset_in_one_process()
        other_models()
    a_process_that_hangs_or_dies(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
