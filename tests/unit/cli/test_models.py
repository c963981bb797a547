import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tapr import corruptions, datasets
from tapr.cli import app
from tapr.errors import ModelError, UnknownNameError
from tapr.models import build, card, checkpoint, load
from tapr.runs.cards import accuracy

LABELS = np.array([0, 1, 2, 3, 0, 1, 2, 3])


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch) -> datasets.Dataset:
    images = np.random.default_rng(0).integers(256, size=(8, 32, 32, 3), dtype=np.uint8)
    tiny = datasets.Dataset("tiny", images, LABELS, ("a", "b", "c", "d"))
    monkeypatch.setattr(datasets, "load", lambda name, split: tiny)
    return tiny


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    checkpoint.save(build("small", 4), path, "small")
    path.with_suffix(".json").write_text(json.dumps({"dataset": "tiny", "command": "tapr train"}))
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["models", *map(str, arguments)])
    if result.exception:
        raise result.exception
    return result.output


def test_card_measures_what_verify_finds_again(data: datasets.Dataset, model: Path) -> None:
    run("card", model)

    facts = card(model)
    assert facts["command"] == "tapr train"
    assert facts["clean_accuracy"] == accuracy(load(model), data)
    assert facts["test_images"] == 8
    assert set(facts["severity_5_accuracy"]) == set(corruptions.CORRUPTIONS)
    fifteen = [facts["severity_5_accuracy"][name] for name in corruptions.STANDARD]
    assert facts["severity_5_mean_of_15"] == pytest.approx(np.mean(fifteen), abs=1e-5)
    assert "of 8 clean test images" in run("verify", model)

    shown = run("info", model)
    assert "tapr train" in shown
    assert "jpeg compression" in shown


def test_verify_fails_when_the_card_says_otherwise(data: datasets.Dataset, model: Path) -> None:
    facts = {"dataset": "tiny", "clean_accuracy": 0.99}
    model.with_suffix(".json").write_text(json.dumps(facts))
    with pytest.raises(ModelError, match="the measured accuracy differs from the card's"):
        run("verify", model)


def test_info_of_an_unknown_model() -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'resnet'"):
        run("info", "resnet")


def test_list_names_the_architectures() -> None:
    assert "robustbench:Hendrycks2020AugMix_WRN" in run("list")


@pytest.mark.parametrize("command", ["list", "info", "verify", "card"])
def test_help_has_an_example(command: str) -> None:
    assert "Example:" in run(command, "--help")
