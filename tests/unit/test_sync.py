"""What may go wrong between processes that adapt together ends with a sentence, on all of them."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tapr
from tapr.testing import small_model

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "hangs"])
def test_between_two_processes(tmp_path: Path, how: str) -> None:
    folder = tmp_path / how
    folder.mkdir()
    start = [sys.executable, "-m", "tests.unit.sync_worker", str(folder)]
    first, second = (
        subprocess.Popen([*start, str(rank)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    )
    try:
        _, trouble = first.communicate()
    finally:
        second.kill()
        _, others = second.communicate()
    assert first.returncode == 0, trouble + others
    assert second.returncode == -signal.SIGKILL, others


def test_only_auto_and_false_are_known() -> None:
    with pytest.raises(tapr.TaprError, match="expected sync to be 'auto' or False, got True"):
        tapr.adapt(small_model(), sync=True)


def test_sync_is_left_out_of_recipes_unless_it_is_off() -> None:
    assert "sync" not in tapr.recipe("tent")
    assert tapr.recipe("tent", sync=False)["sync"] is False
