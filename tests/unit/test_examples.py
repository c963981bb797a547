"""Every example runs, is short, and says something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
PROMISES = "it keeps every promise of a method"
SAYS = {
    "class_memory.py": PROMISES,
    "mean_teacher.py": PROMISES,
    "nearest_mean.py": PROMISES,
    "observers.py": "seconds/learning",
    "sharpness_aware.py": PROMISES,
    "torchrun.py": "1 processes, ",
    "adapt_one_batch.py": "3 forwards an image",
    "compare_methods.py": "pest ",
    "dataloader_loop.py": "batch 4: mean confidence",
    "own_augmentation.py": "own:PenWidth",
    "own_method.py": PROMISES,
    "save_and_go_on.py": "reset is the source model: True",
}


def test_all_of_them_are_looked_at() -> None:
    assert [path.name for path in EXAMPLES] == sorted(SAYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_it_runs(path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # beside other tests, one is faster
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.name] in done.stdout
    assert "False" not in done.stdout
