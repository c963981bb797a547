"""`tapr bench --log`: every batch is handed on, and a missing package is named."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.cli.logs import scalars
from tapr.errors import InputError
from tapr.records import BatchRecord

ARGUMENTS = ["bench", "digits", "--corruptions", "none", "--images", "30", "--batch-size", "10"]


class Writer:
    """Notes what TensorBoard would write."""

    made: ClassVar[list["Writer"]] = []

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.closed = Path(folder), purge_step, False
        self.scalars: list[tuple[str, float, int]] = []
        Writer.made.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars.append((name, value, step))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[Writer]:
    module: Any = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    monkeypatch.setattr(Writer, "made", [])
    return Writer.made


def run(out: Path, *arguments: str) -> None:
    command = [*ARGUMENTS, "--out", str(out), "--log", "tensorboard", *arguments]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    assert done.exit_code == 0


def test_every_batch_of_every_cell_is_written(writers: list[Writer], tmp_path: Path) -> None:
    run(tmp_path, "--methods", "source,tent")
    assert [writer.closed for writer in writers] == [True, True]
    for writer, label in zip(writers, ("source", "tent"), strict=True):
        assert writer.folder.parent == tmp_path / "tensorboard"
        assert writer.folder.name.startswith(f"clean.{label}.seed0.")
        assert {step for _, _, step in writer.scalars} == {0, 1, 2}
    names = [{name for name, _, _ in writer.scalars} for writer in writers]
    assert {"accuracy", "confidence", "log_likelihood", "images_per_second"} <= names[0]
    assert names[1] - names[0] == {"loss", "loss/entropy"}
    run(tmp_path, "--methods", "source,tent")  # all is finished
    assert len(writers) == 2


def test_a_missing_package_is_named_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match="which is not installed: pip install tensorboard"):
        run(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_numbers_of_a_batch() -> None:
    record = BatchRecord(
        labels=[0, 1],
        predicted=[0, 0],
        probabilities=[[0.5, 0.25], [0.75, 0.25]],
        log_likelihoods=[-1.0, -2.0],
        terms={"entropy": 0.5},
        kept=1,
        seconds=0.5,
    )
    assert scalars(record) == {
        "accuracy": 0.5,
        "confidence": 0.625,
        "log_likelihood": -1.5,
        "loss/entropy": 0.5,
        "steps": 0,
        "kept": 0.5,
        "refused": 0,
        "images_per_second": 4.0,
    }
    assert "accuracy" not in scalars(BatchRecord(predicted=[1]))
