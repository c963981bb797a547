"""MNIST's idx files: decoded and padded; damaged ones refused."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from tapr.datasets import DATASETS
from tapr.datasets.mnist import FILES, read_mnist
from tapr.errors import DataError

GREY = np.random.default_rng(0).integers(1, 256, (3, 28, 28), np.uint8)
DIGITS = bytes([7, 0, 9])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for images, labels in FILES.values():
        (tmp_path / images).write_bytes(struct.pack(">4I", 2051, 3, 28, 28) + GREY.tobytes())
        (tmp_path / labels).write_bytes(struct.pack(">2I", 2049, 3) + DIGITS)
    return tmp_path


def test_images_are_padded_and_labels_kept(folder: Path) -> None:
    images, labels = read_mnist(folder)["test"]
    assert images.shape == (3, 32, 32, 3)
    for channel in range(3):
        np.testing.assert_array_equal(images[:, 2:30, 2:30, channel], GREY)
    assert np.count_nonzero(images) == 3 * GREY.size
    assert labels.tolist() == [7, 0, 9]
    assert labels.dtype == np.int64


def test_gzipped_files(folder: Path) -> None:
    plain = read_mnist(folder)
    for file in sorted(folder.iterdir()):
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    for split, arrays in read_mnist(folder).items():
        for one, other in zip(arrays, plain[split], strict=True):
            np.testing.assert_array_equal(one, other)
    cut = folder / "train-labels-idx1-ubyte.gz"
    cut.write_bytes(cut.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte\.gz is not a whole \.gz file"):
        read_mnist(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected an idx file that begins with 00000803"),
        (b"\x1f\x8b" + bytes(30), "begins with 00000803"),
        (struct.pack(">4I", 2051, 3, 28, 28) + b"short", r"of shape \[3, 28, 28\], got 5"),
    ],
    ids=["empty", "gzipped", "cut"],
)
def test_damaged_files(folder: Path, content: bytes, message: str) -> None:
    (folder / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(DataError, match=f"t10k-images-idx3-ubyte: .*{message}"):
        read_mnist(folder)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match="to hold t10k-labels-idx1-ubyte"):
        read_mnist(folder)


def test_other_digits_are_not_taken_for_mnist(folder: Path, watch: object) -> None:
    with pytest.raises(DataError, match="is not mnist: expected test images with sha256 1b6db7d5"):
        DATASETS["mnist"].get(watch, folder)  # type: ignore[arg-type]
