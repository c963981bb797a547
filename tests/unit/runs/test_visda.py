"""VisDA-C from a fabricated tree in the official layout to the table: data, train, bench."""

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from tapr import datasets, records
from tapr.cli import app
from tapr.datasets import classes as names
from tapr.errors import DataError, InputError, ModelError, TaprError
from tapr.models import ARCHITECTURES, card
from tapr.models.resnet import ResNet
from tapr.runs import spec as specs

SPLITS = {"train": 24, "validation": 24, "test": 30}
SYSTEMS = list(specs.load("visda", {}).methods)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The official layout, tiny: folders, and the test split in its tar; a narrow ResNet."""
    random = np.random.default_rng(0)
    for split, count in SPLITS.items():
        lines = []
        for number in range(count):
            label = number % 12
            name = f"{names.VISDA[label]}/{split} {number:02d}.jpg"
            path = tmp_path / "visda" / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 100, (20, 30, 3)) + 13 * label
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            lines.append(f"{name} {label}\n")
        (tmp_path / "visda" / split / "image_list.txt").write_text("".join(lines))
    test = tmp_path / "visda" / "test"
    with tarfile.open(test.with_suffix(".tar"), "w") as archive:
        archive.add(test, "test")
    test.rename(tmp_path / "unpacked")
    narrow = {"resnet-narrow": lambda classes: ResNet(classes, (1, 1, 1, 1), width=2)}
    monkeypatch.setattr("tapr.datasets.visda.RESIZED", 64)
    monkeypatch.setattr("tapr.datasets.visda.CROPPED", 56)
    monkeypatch.setattr(ARCHITECTURES, "_entries", {**ARCHITECTURES._entries, **narrow})
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tapr(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments)
    if result.exception:
        raise result.exception
    return result.output


def train(*more: str) -> str:
    options = ["--model", "resnet-narrow", "--epochs", "1", "--batch-size", "12"]
    return tapr("train", "visda", *options, *more, "--out", "runs/visda-source")


def test_from_the_tree_to_the_table(place: Path) -> None:
    (place / "visda" / "train" / "bus" / "train 02.jpg").write_text("not a picture")
    torch.save(ResNet(1000, (1, 1, 1, 1), width=2).state_dict(), place / "imagenet.pth")

    assert "visda train is in" in tapr("data", "get", "visda", "--from", "visda")
    assert "epoch 1/1" in train("--weights", "imagenet.pth")
    facts = card("runs/visda-source/model.safetensors")
    assert (facts["classes"], facts["training_images"]) == (12, 23)
    assert facts["command"].endswith("--weights imagenet.pth")

    shown = tapr("bench", "visda", "--out", "runs/visda")
    assert "class mean" in shown
    files = sorted(Path("runs/visda").glob("*.jsonl"))
    assert len(files) == len(SYSTEMS) == 6
    for file in files:
        run, problems = records.read(file)
        assert not problems
        assert run.end is not None
        assert (run.cell["origin"]["dataset"], run.setting["split"]) == ("visda:test", "test")
        assert run.cell["classes"] == list(names.VISDA)
        assert [len(batch.predicted) for batch in run.batches] == [30]
        assert records.class_mean(records.confusion(run.batches)) is not None

    tapr("report", "runs/visda", "-o", "report.html")
    page = Path("report.html").read_text()
    assert all(system in page for system in SYSTEMS)

    lines = tapr("bench", "visda", "--split", "validation", "--methods", "source", "--json")
    line = json.loads(lines)
    assert line["images"] == 24
    assert 0 <= line["class_mean_accuracy"] <= 100


def test_bad_trees(place: Path) -> None:
    with pytest.raises(DataError, match="visda is not here; `tapr data get visda --from"):
        train()
    tapr("data", "get", "visda", "--from", "visda")
    (place / "visda" / "test.tar").unlink()
    with pytest.raises(DataError, match="visda has no test here"):
        datasets.load("visda", "test")
    with pytest.raises(DataError, match="visda has no split 'real'"):
        datasets.load("visda", "real")
    listed = place / "visda" / "train" / "image_list.txt"
    listed.write_text(listed.read_text() + "tram/x.jpg 12\n")
    with pytest.raises(DataError, match=r"train.image_list\.txt, line 25: .* from 0 to 11"):
        train()
    listed.write_text("bus/nowhere.jpg 2\n")
    with pytest.raises(DataError, match=r"names 1 files that are not there.* bus/nowhere\.jpg"):
        train()


def test_other_colour_modes_train_too(place: Path) -> None:
    for number, mode in enumerate(("L", "P", "CMYK")):
        path = place / "visda" / "train" / names.VISDA[number] / f"train {number:02d}.jpg"
        Image.open(path).convert("RGB" if mode == "P" else mode).save(path, "JPEG")
        if mode == "P":
            Image.open(path).convert("P").save(path, "PNG")
    tapr("data", "get", "visda", "--from", "visda")
    assert datasets.load("visda", "train").skipped == ()
    assert "epoch 1/1" in train()


def test_a_bench_without_its_source_model_says_what_is_missing(place: Path) -> None:
    with pytest.raises(
        ModelError, match="is not one; `tapr train DATA --out runs/visda-source` would make it"
    ):
        tapr("bench", "visda")


def test_a_test_split_without_labels_still_runs(place: Path) -> None:
    (place / "visda" / "test.tar").unlink()
    unpacked = (place / "unpacked").rename(place / "visda" / "test")
    listed = unpacked / "image_list.txt"
    stripped = [line.rsplit(" ", 1)[0] for line in listed.read_text().splitlines()]
    listed.write_text("".join(f"plain/{n}.jpg\n" for n in range(len(stripped))))
    for number, name in enumerate(stripped):
        (unpacked / "plain").mkdir(exist_ok=True)
        (unpacked / name).rename(unpacked / "plain" / f"{number}.jpg")
    tapr("data", "get", "visda", "--from", "visda")
    train()
    tapr("bench", "visda", "--methods", "source", "--out", "runs/visda", "--quiet")
    run, _ = records.read(next(Path("runs/visda").glob("*.jsonl")))
    assert (run.images, run.accuracy) == (30, None)
    assert records.class_mean(records.confusion(run.batches)) is None


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("timm:resnet50", "--weights PATH"),
        ("nowhere.pth", "nowhere.pth is not one"),
        ("other.pth", "does not fit: 18 surplus"),
    ],
)
def test_weights_that_cannot_be_had(
    place: Path, weights: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    torch.save(ResNet(5, (1, 1, 1, 2), width=2).state_dict(), place / "other.pth")
    tapr("data", "get", "visda", "--from", "visda")
    with pytest.raises(TaprError, match=message.replace(".", r"\.")):
        train("--weights", weights)


def test_a_batch_larger_than_the_data(place: Path) -> None:
    tapr("data", "get", "visda", "--from", "visda")
    with pytest.raises(InputError, match="at least one batch of 64 labelled images, got 24"):
        tapr("train", "visda", "--model", "resnet-narrow", "--out", "x")


def test_class_mean_weighs_classes_alike() -> None:
    counts: Any = records.Confusion({(0, 0): 90, (0, 1): 10, (1, 0): 5, (1, 1): 5})
    assert records.class_accuracies(counts) == {0: 0.9, 1: 0.5}
    assert records.class_mean(counts) == pytest.approx(0.7)
