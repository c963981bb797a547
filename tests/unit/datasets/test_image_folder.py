"""Folders of images: labels from subfolders, sizes, odd formats, unreadable files."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tapr import datasets
from tapr.errors import DataError, InputError


def _save(path: Path, size: tuple[int, int] = (20, 10), colour: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, colour).convert(mode).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    _save(folder / "dog" / "b.png", colour=30)
    _save(folder / "dog" / "deep" / "a.bmp", colour=20)
    _save(folder / "cat" / "x.PNG", colour=10)
    (folder / "cat" / "notes.txt").write_text("not an image")
    (folder / "cat" / ".hidden.png").write_text("not an image")
    (folder / "empty").mkdir()
    return folder


def test_a_subfolder_per_class(folder: Path) -> None:
    data = datasets.load(f"folder:{folder}")
    assert data.classes == ("cat", "dog")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 1, 1]
    assert data.images.shape == (3, 10, 20, 3)
    assert data.images.dtype == np.uint8
    assert data.images[np.array([2, 0])][:, 0, 0, 0].tolist() == [20, 10]
    assert data.images[1:][:, 0, 0].tolist() == [[30] * 3, [20] * 3]
    assert data.images[-1].shape == (10, 20, 3)
    assert np.asarray(data.images).shape == (3, 10, 20, 3)
    assert data.skipped == ()


def test_flat(folder: Path) -> None:
    data = datasets.load(f"folder:{folder / 'dog' / 'deep'}")
    assert data.labels is None
    assert data.classes == ()
    assert len(data) == 1


def test_unreadable_files_are_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    whole = folder / "cat" / "whole.jpg"
    Image.fromarray(noise).resize((20, 10)).save(whole)
    (folder / "cat" / "cut.jpg").write_bytes(whole.read_bytes()[:-200])
    (folder / "cat" / "text.jpg").write_text("hello")
    (folder / "dog" / "empty.png").touch()
    with caplog.at_level(logging.WARNING, "tapr.datasets"):
        data = datasets.load(f"folder:{folder}")
    assert data.labels is not None
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert [line.split(":")[0] for line in data.skipped] == [
        "cat/cut.jpg",
        "cat/text.jpg",
        "dog/empty.png",
    ]
    assert data.skipped[1] == "cat/text.jpg: it is not an image of a known format"
    assert len(caplog.records) == 3
    assert data.images[:].shape == (4, 10, 20, 3)


def test_only_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_text("hello")
    with pytest.raises(DataError, match=r"none of the 1 images in .* can be read: a\.png"):
        datasets.load(f"folder:{tmp_path}")


def test_empty_and_absent(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected images \(\.bmp.*\) in .*, found none"):
        datasets.load(f"folder:{tmp_path}")
    with pytest.raises(DataError, match="nowhere is not a folder"):
        datasets.load(f"folder:{tmp_path / 'nowhere'}")


def test_sizes(folder: Path) -> None:
    _save(folder / "dog" / "wide.png", size=(40, 8))
    with pytest.raises(DataError, match=r"x\.PNG has 10 x 20 and .*8 x 40 pixels; give a size"):
        datasets.load(f"folder:{folder}")
    data = datasets.load(f"folder:{folder}", size=16)
    assert data.images[:].shape == (4, 16, 16, 3)


def test_size_cuts_the_centre(tmp_path: Path) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:, 8:24] = 200
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert (datasets.load(f"folder:{tmp_path}", size=16).images[0] == 200).all()


@pytest.mark.parametrize("size", [0, -1])
def test_bad_size(folder: Path, size: int) -> None:
    with pytest.raises(InputError, match=f"at least 1 pixel, got {size}"):
        datasets.load(f"folder:{folder}", size=size)


@pytest.mark.parametrize("size", [None, 8])
def test_what_is_not_rgb_becomes_it(tmp_path: Path, size: int | None) -> None:
    Image.new("CMYK", (8, 8)).save(tmp_path / "a.tif")
    Image.new("I;16", (8, 8), 65535).save(tmp_path / "b.png")
    assert (datasets.load(f"folder:{tmp_path}", size=size).images[:] == 255).all()


@pytest.mark.parametrize("size", [None, 10])
def test_sideways_photographs_are_set_upright(tmp_path: Path, size: int | None) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    for name in ("a.jpg", "a.tif"):
        Image.new("RGB", (20, 10)).save(tmp_path / name, exif=exif)
    shape = (20, 10) if size is None else (size, size)
    assert datasets.load(f"folder:{tmp_path}", size=size).images[:].shape == (2, *shape, 3)


def test_what_is_not_a_regular_file_is_skipped_by_name(folder: Path) -> None:
    os.mkfifo(folder / "cat" / "pipe.jpg")
    (folder / "cat" / "zeros.jpg").symlink_to("/dev/zero")
    (folder / "cat" / "gone.jpg").symlink_to("nowhere")
    (folder / "cat" / "same.png").symlink_to("x.PNG")
    Image.new("F", (20, 10)).save(folder / "cat" / "float.tif")
    data = datasets.load(f"folder:{folder}")
    assert len(data) == 4
    assert data.skipped == (
        "cat/float.tif: float image, whose range is not known: expected 8 or 16 bits a channel",
        "cat/gone.jpg: No such file or directory",
        "cat/pipe.jpg: not a regular file",
        "cat/zeros.jpg: not a regular file",
    )


def test_a_file_that_changed_since(folder: Path) -> None:
    data = datasets.load(f"folder:{folder}")
    _save(folder / "cat" / "x.PNG", size=(7, 7))
    with pytest.raises(DataError, match=r"x\.PNG: expected an image of 10 x 20 pixels, got 7 x 7"):
        data.images[0]
    (folder / "cat" / "x.PNG").unlink()
    with pytest.raises(DataError, match=r"cannot read the image cat/x\.PNG"):
        data.images[0]
