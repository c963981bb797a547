"""VisDA-C in its official layout: folders and tars, the released preprocessing, bad lists."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr import datasets
from tapr.datasets.visda import prepare
from tapr.errors import DataError

VISDA = datasets.DATASETS["visda"]
NAMES = {"aeroplane/a.png": 0, "truck/b b.jpg": 11, "bus/c.png": 2}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "visda"
    random = np.random.default_rng(0)
    for split in ("train", "validation"):
        for name in NAMES:
            path = folder / split / name
            path.parent.mkdir(parents=True)
            Image.fromarray(random.integers(0, 256, (30, 50, 3), np.uint8)).save(path)
        lines = [f"{name} {label}" for name, label in NAMES.items()]
        (folder / split / "image_list.txt").write_text("\n".join(lines) + "\n")
    return folder


def _to_tars(folder: Path) -> Path:
    tars = folder.parent / "tars"
    tars.mkdir()
    for split in folder.iterdir():
        with tarfile.open(tars / f"{split.name}.tar", "w") as archive:
            archive.add(split, split.name)
    return tars


def test_folders_and_tars_give_the_same(folder: Path, watch: Any) -> None:
    loaded = []
    for origin in (folder, _to_tars(folder)):
        VISDA.get(watch, origin)
        assert VISDA.where() == origin
        assert VISDA.verify(watch) == []
        data = datasets.load("visda", split="validation")
        assert data.labels is not None
        assert data.labels.tolist() == [0, 11, 2]
        assert data.classes[11] == "truck"
        assert data.images.shape == (3, 224, 224, 3)
        loaded.append(data.images[:])
    np.testing.assert_array_equal(loaded[0], loaded[1])
    assert watch.notes[0] == f"visda train is in {folder}, 0 unreadable images"


def test_preprocessing_is_the_released_one(folder: Path, watch: Any) -> None:
    VISDA.get(watch, folder)
    image = Image.open(folder / "train" / "aeroplane" / "a.png")
    resized = np.asarray(image.resize((256, 256), Image.Resampling.BILINEAR))
    came = datasets.load("visda", split="train").images[0]
    np.testing.assert_array_equal(came, resized[16:240, 16:240])


def test_every_image_becomes_rgb_of_the_released_size() -> None:
    file = io.BytesIO()
    Image.new("LA", (30, 20), (255, 0)).save(file, "PNG")
    pixels = np.asarray(prepare(file.getvalue()))
    assert pixels.shape == (224, 224, 3)
    assert (pixels == 255).all()


def test_unreadable_images_are_counted_and_skipped(folder: Path, watch: Any) -> None:
    (folder / "train" / "truck" / "b b.jpg").write_text("hello")
    VISDA.get(watch, folder)
    assert "visda train is in" in watch.notes[0]
    assert "1 unreadable" in watch.notes[0]
    data = datasets.load("visda", split="train")
    assert data.skipped == ("truck/b b.jpg",)
    assert data.labels is not None
    assert data.labels.tolist() == [0, 2]
    assert data.images[:].shape == (2, 224, 224, 3)
    assert "truck/b b.jpg cannot be read" in VISDA.verify(watch)[0]


def test_a_list_without_labels(folder: Path, watch: Any) -> None:
    (folder / "test").mkdir()
    Image.new("RGB", (9, 9)).save(folder / "test" / "a.png")
    (folder / "test" / "image_list.txt").write_text("a.png\n")
    VISDA.get(watch, folder)
    assert datasets.load("visda", split="test").labels is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("aeroplane/a.png 12", "line 1: expected a file and a class from 0 to 11, got .*12"),
        ("aeroplane/a.png 0\ntruck/x x", "line 2: expected a file and a class"),
        ("aeroplane/a.png 0\nbus/c.png", "line 2: expected a file and a class"),
        ("../visda/a.png 0", "leads out of the folder"),
        ("../visda/a.png", "line 1: .* leads out of the folder"),
        ("bus/c.png 2\n/etc/hostname 0", "line 2: '/etc/hostname' leads out of the folder"),
        ("bus/z.png 0\nbus/c.png 2", "names 1 files that are not there, the first is bus/z.png"),
    ],
)
@pytest.mark.parametrize("form", ["folder", "tar"])
def test_bad_lists(folder: Path, watch: Any, text: str, message: str, form: str) -> None:
    (folder / "train" / "image_list.txt").write_text(text)
    with pytest.raises(DataError, match=rf"train.*image_list\.txt.*{message}"):
        VISDA.get(watch, folder if form == "folder" else _to_tars(folder))
    assert VISDA.where() is None


def test_missing(folder: Path, watch: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"visda is not here; `tapr data get visda --from"):
        datasets.load("visda", split="train")
    with pytest.raises(DataError, match=r"is not downloaded for you: get train\.tar"):
        VISDA.get(watch)
    with pytest.raises(DataError, match="to hold train, validation or test"):
        VISDA.get(watch, tmp_path)
    VISDA.get(watch, folder)
    with pytest.raises(DataError, match=r"no test here: expected .*image_list\.txt or .*test\.tar"):
        datasets.load("visda", split="test")


def test_damaged_tar(folder: Path, watch: Any) -> None:
    tars = _to_tars(folder)
    (tars / "train.tar").write_bytes((tars / "train.tar").read_bytes()[:3000])
    with pytest.raises(DataError, match=r"train\.tar.*(not a whole|not there)"):
        VISDA.get(watch, tars)
    with tarfile.open(tars / "train.tar", "w:gz") as archive:
        archive.add(folder / "train", "train")
    with pytest.raises(DataError, match="not a whole, uncompressed tar"):
        VISDA.get(watch, tars)
