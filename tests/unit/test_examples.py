"""Every example runs, is short, and says something."""

import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))
PROMISES = "it keeps every promise of a method"
SAYS = {
    "class_memory.py": PROMISES,
    "mean_teacher.py": PROMISES,
    "nearest_mean.py": PROMISES,
    "observers.py": "seconds/learning",
    "sharpness_aware.py": PROMISES,
    "ray_train.py": "2 processes, ",
    "torchrun.py": "2 processes, ",
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


PROCESSES = {"ray_train.py", "torchrun.py"}  # examples that are about processes


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAYS.keys() - PROCESSES))
def test_it_runs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(FOLDER)  # as a script has it
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    said = capsys.readouterr().out
    assert SAYS[name] in said
    assert "False" not in said


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'ray[train]'"
)
def test_ray_train_starts_two_processes() -> None:
    assert SAYS["ray_train.py"] in printed(sys.executable, str(FOLDER / "ray_train.py"))


@pytest.mark.slow
def test_torchrun_starts_two_processes_that_give_the_result_of_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    example = str(FOLDER / "torchrun.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]  # on a free port
    runpy.run_path(example, run_name="__main__")
    one = capsys.readouterr().out
    two = printed(*torchrun, "--nproc-per-node", "2", example)
    assert SAYS["torchrun.py"] in two
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
