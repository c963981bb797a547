"""One of the processes of `test_sync.py`: runs every row of the table and writes what it saw.

python sync_worker.py FOLDER RANK SIZE
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from tests.conftest import Transformer
from tests.contracts.test_adapters import ADAPTERS
from torch import Tensor, distributed

import tapr
from tapr.testing import Subject, small_model
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


def batches() -> list[Tensor]:
    subject = Subject(tapr.adapt, torch.nn.Identity(), (3, 10, 9))
    images = torch.cat([*subject.batches(), *(batch.flip(3) for batch in subject.batches())])
    return list(torch.split(images.double(), [*TOTALS, len(images) - sum(TOTALS)]))[: len(TOTALS)]


def outcome(name: str, rank: int, size: int) -> dict[str, Any]:
    """The answers, the numbers beside them, and all that moves, after five batches."""
    method, options = name.partition("-")[0], {**ADAPTERS[name], **CHANGED.get(name, {})}
    for key, value in options.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            options[key] = value.double()
    model = Transformer() if method == "foa" else small_model()
    adapter = tapr.adapt(model.double().eval(), method, **options)
    answers, numbers = [], []
    for images, shares in zip(batches(), SHARES[size], strict=True):
        prediction = adapter.predict(torch.split(images, list(shares))[rank])
        answers.append(prediction.logits)
        told = {**prediction._asdict(), **(prediction.health or Health())._asdict()}
        numbers.append({key: told[key] for key in NUMBERS} | {"shift": sum(told["shift"])})
    return {"answers": answers, "numbers": numbers, "state": adapter.capture().tensors}


def main(folder: str, rank: int, size: int) -> None:
    torch.set_num_threads(1)
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


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
