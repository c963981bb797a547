"""What `tapr bench` prints of published numbers."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.datasets import Dataset
from tapr.models import build, checkpoint
from tapr.runs import bench
from tapr.runs.spec import Spec
from tapr.streams import Domain, corrupted


def _few(spec: Spec, *_: object) -> list[Domain]:
    """Four images under the name of each corruption."""
    generator = np.random.default_rng(0)
    images = generator.integers(256, size=(4, 32, 32, 3), dtype=np.uint8)
    classes = tuple("abcdefghij")
    data = Dataset("cifar10", images, generator.integers(10, size=4), classes)
    (domain,) = corrupted(data, ["brightness"], [5], None)
    return [replace(domain, corruption=name) for name in spec.corruptions]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny network under the name of the published one, and under another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench, "_domains", _few)
    for name in ("wrn-28-10", "mine"):
        checkpoint.save(build("wrn-10-1", 10), f"{name}.safetensors", "wrn-10-1")
    return tmp_path


def printed(*options: str) -> str:
    command = ["bench", "paper-cifar10c", "--batch-size", "2", *options]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "400"})
    assert done.exit_code == 0, done.output
    return done.output


def test_the_published_number_stands_under_each_method(files: Path) -> None:
    text = printed("--model", "wrn-28-10.safetensors", "--methods", "source,norm")
    (line,) = (line for line in text.splitlines() if line.strip().startswith("published  "))
    assert line.split() == ["published", "56.5", "-"]
    text = " ".join(text.split())
    assert "published: Sivaprasad & Fleuret 2021; for WRN-28-10, 10,000 images of each" in text
    assert "those of norm are for the protocol continual" in text


def test_many_methods_have_a_column(files: Path) -> None:
    methods = "source,norm,tent,sar,roid,rpl,deyo,cmf,eta"
    text = printed(
        *("--model", "wrn-28-10.safetensors", "--methods", methods, "--protocol", "continual")
    )
    (head,) = (line for line in text.splitlines() if "mean of 1" in line)
    assert head.split()[-1] == "published"
    last = {line.split()[0]: line.split()[-1] for line in text.splitlines() if line.split()}
    wanted = {"source": "56.5", "norm": "79.6", "tent": "80.0", "sar": "79.6", "roid": "83.8"}
    wanted |= {"rpl": "79.0", "deyo": "-", "cmf": "-", "eta": "-"}
    assert {key: last[key] for key in wanted} == wanted


def test_for_another_model_a_line_says_why_there_is_none(files: Path) -> None:
    text = printed("--model", "mine.safetensors", "--methods", "source")
    assert "the nearest are for WRN-28-10, here the model is mine.safetensors" in text
    assert not any(line.strip().startswith("published  ") for line in text.splitlines())


def test_nothing_is_said_of_data_without_published_numbers(files: Path) -> None:
    text = printed("--model", "mine.safetensors", "--methods", "source", "--data", "digits")
    assert "published" not in text
