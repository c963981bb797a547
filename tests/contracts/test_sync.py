"""Many processes equal one: every method, on batches of which each process has another share."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.contracts.sync_worker import ROWS
from torch import Tensor

from tapr.names import METHODS

ROOT = Path(__file__).parents[2]
STATISTICS = ("source", "norm", "lame", "t3a", "steady")  # methods without a gradient: 1e-9
Seen = dict[str, Any]  # by one process, of one row


@pytest.mark.slow
def test_many_processes_equal_one(tmp_path: Path) -> None:
    """Two and three of them, every row of the table, in one test: the processes start once."""
    start = [sys.executable, "-m", "tests.contracts.sync_worker", str(tmp_path)]
    done = subprocess.run(start, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (one,) = seen(tmp_path, 1)
    wrong = {}
    for size in (2, 3):
        processes = seen(tmp_path, size)
        for name in ROWS:
            within = 1e-9 if name.partition("-")[0] in STATISTICS else 1e-7
            try:
                compare([each[name] for each in processes], one[name], within)
            except AssertionError as error:
                wrong[size, name] = str(error)
    assert wrong == {}


def test_every_method_has_a_row() -> None:
    assert {name.partition("-")[0] for name in ROWS} == set(METHODS)


def seen(folder: Path, size: int) -> list[dict[str, Seen]]:
    """What each of so many processes saw, row by row."""
    return [torch.load(folder / f"{size}-{rank}.pt") for rank in range(size)]


def compare(many: list[Seen], one: Seen, within: float) -> None:
    for number, expected in enumerate(one["answers"]):
        answer = torch.cat([rank["answers"][number] for rank in many])
        torch.testing.assert_close(answer, expected, rtol=0, atol=within)
        assert many[0]["numbers"][number] == pytest.approx(one["numbers"][number], abs=1e-5)
    for rank in many:
        assert rank["numbers"] == many[0]["numbers"]
        assert rank["state"].keys() == one["state"].keys()
        for place, value in rank["state"].items():
            assert torch.equal(value, many[0]["state"][place]), f"{place} differs between ranks"
            assert close(value, one["state"][place], within), f"{place} differs from one process"


def close(value: Tensor, expected: Tensor, within: float) -> bool:
    if not value.is_floating_point():
        return torch.equal(value, expected)
    return value.shape == expected.shape and torch.allclose(value, expected, rtol=0, atol=within)
