from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tapr import datasets
from tapr.cli import app
from tapr.errors import InputError
from tapr.models import card, load

OPTIONS = ["--epochs", "2", "--batch-size", "16", "--model", "small"]


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(32, 16, 16, 3), dtype=np.uint8)
    data = datasets.Dataset("tiny", images, generator.integers(3, size=32), ("a", "b", "c"))
    monkeypatch.setattr(datasets, "load", lambda name, split: data)


def test_train_writes_log_checkpoint_model_and_card(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train", "tiny", *OPTIONS, "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "epoch 1/2" in result.output
    assert "epoch 2/2" in result.output
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"checkpoint.pt", "log.jsonl", "model.safetensors", "model.json"}
    assert card(tmp_path / "model.safetensors")["classes"] == 3
    assert load(tmp_path / "model.safetensors", classes=3) is not None


def test_a_started_training_goes_on_only_when_told(tmp_path: Path) -> None:
    command = ["train", "tiny", *OPTIONS, "--out", str(tmp_path)]
    CliRunner().invoke(app, command)
    again = CliRunner().invoke(app, command)
    assert isinstance(again.exception, InputError)
    assert "--resume" in str(again.exception)
    assert CliRunner().invoke(app, [*command, "--resume"]).exit_code == 0


def test_a_rotation_head_is_trained_when_asked_for(tmp_path: Path) -> None:
    command = ["train", "tiny", *OPTIONS, "--rotation", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "rotation accuracy" in done.output
    assert card(tmp_path / "model.safetensors")["architecture"] == "small-rotation"
    assert callable(load(tmp_path / "model.safetensors").rotation)


def test_an_architecture_without_a_twin_is_refused(tmp_path: Path) -> None:
    command = ["train", "tiny", "--model", "wrn-16-1", "--rotation", "--out", str(tmp_path / "no")]
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, InputError)
    assert "expected an architecture that has a twin with a rotation head" in str(done.exception)
    assert not (tmp_path / "no").exists()


def test_a_folder_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["train", "folder:photos", "--out", str(tmp_path)])
    assert isinstance(done.exception, InputError)
    assert "expected a data set with a train split, got folder:photos" in str(done.exception)


def test_help_has_an_example() -> None:
    assert "Example:" in CliRunner().invoke(app, ["train", "--help"]).output
