"""The processes of `test_sync.py`: they run every row of the table and write what they saw.

    python -m tests.contracts.sync_worker FOLDER

Starting costs more than the rows do. So everything is imported once, before three processes part by
fork: first all of them are a group, then two of them are one while the third runs the rows alone.
"""

import sys
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which the first optimizer imports, for seconds
from tests.contracts.test_adapters import ADAPTERS, model_for, size_for
from torch import Tensor, distributed

import tapr
from tapr.testing import Subject
from tapr.types import Health

NUMBERS = (
    *("loss", "steps", "kept", "refused", "forward", "backward", "shadow", "verdict", "action"),
    *("images", "credit", "support", "agreement", "entropy", "information", "views"),
)
# Every method as it comes, and what takes other ways through statistics, votes and memories.
FURTHER = (
    *("norm-running", "norm-cumulative", "norm-blend", "norm-shares", "tent-votes", "tent-blend"),
    *("pest-share", "pest-untouched", "steady-learning", "lame-released", "rmt-source"),
    *("roid-released", "note-iid", "memo-adamw"),
)
ROWS = [name for name in ADAPTERS if "-" not in name or name in FURTHER]
# The first gradient of CoTTA is 0 up to rounding: the teacher is still the student. Adam divides it
# by its own size, so that rounding decides the step; plain SGD does not.
CHANGED = {"cotta": {"optimizer": "sgd"}}
TOTALS = (8, 7, 5, 9, 6)  # images of the five batches
# How many of them each process has; some have none.
SHARES = {
    1: tuple((total,) for total in TOTALS),
    2: ((5, 3), (7, 0), (2, 3), (0, 9), (1, 5)),
    3: ((3, 4, 1), (0, 7, 0), (2, 1, 2), (4, 0, 5), (0, 1, 5)),
}


def batches(name: str) -> list[Tensor]:
    subject = Subject(tapr.adapt, torch.nn.Identity(), size_for(name))
    images = torch.cat([*subject.batches(), *(batch.flip(3) for batch in subject.batches())])
    return list(torch.split(images.double(), [*TOTALS, len(images) - sum(TOTALS)]))[: len(TOTALS)]


def outcome(name: str, rank: int, size: int) -> dict[str, Any]:
    """The answers, the numbers beside them, and all that moves, after five batches."""
    method, options = name.partition("-")[0], {**ADAPTERS[name], **CHANGED.get(name, {})}
    for key, value in options.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            options[key] = value.double()
    adapter = tapr.adapt(model_for(name).double().eval(), method, **options)
    answers, numbers = [], []
    for images, shares in zip(batches(name), SHARES[size], strict=True):
        prediction = adapter.predict(torch.split(images, list(shares))[rank])
        answers.append(prediction.logits)
        told = {**prediction._asdict(), **(prediction.health or Health())._asdict()}
        numbers.append({key: told[key] for key in NUMBERS} | {"shift": sum(told["shift"])})
    return {"answers": answers, "numbers": numbers, "state": adapter.capture().tensors}


def alone(folder: str) -> None:
    """What one process sees."""
    torch.save({name: outcome(name, 0, 1) for name in ROWS}, Path(folder) / "1-0.pt")


def together(folder: str, rank: int, size: int) -> None:
    """What one process of a group sees."""
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting-{size}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=300),
    )
    found = {name: outcome(name, rank, size) for name in ROWS}
    torch.save(found, Path(folder) / f"{size}-{rank}.pt")
    distributed.destroy_process_group()


def work(folder: str, rank: int) -> None:
    """The life of one of three processes."""
    torch.set_num_threads(1)
    together(folder, rank, 3)
    if rank < 2:
        together(folder, rank, 2)
    else:
        alone(folder)


def main(folder: str) -> None:
    context = get_context("fork")
    processes = [context.Process(target=work, args=(folder, rank)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    if codes != [0, 0, 0]:
        sys.exit(f"exit codes {codes}")


if __name__ == "__main__":
    main(sys.argv[1])
