"""Every example runs, is short, and says something."""

import os
import subprocess
import sys
from importlib.util import find_spec
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
    "ray_train.py": "2 processes, ",
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


NO_RAY = pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'ray[train]'"
)
MARKS = {"ray_train.py": [pytest.mark.ray, NO_RAY]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=MARKS.get(path.name, ()), id=path.name) for path in EXAMPLES]
)
def test_it_runs(path: Path) -> None:
    said = printed(sys.executable, str(path))
    assert SAYS[path.name] in said
    assert "False" not in said


@pytest.mark.slow
def test_torchrun_starts_two_processes_that_give_the_result_of_one() -> None:
    example = str(EXAMPLES[0].with_name("torchrun.py"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]  # on a free port
    one = printed(sys.executable, example)
    two = printed(*torchrun, "--nproc-per-node", "2", example)
    assert two == one.replace("1 processes", "2 processes")


def printed(*command: str) -> str:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",  # beside other tests, one is faster
        **{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64},  # else Ray leaves one in the home
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
