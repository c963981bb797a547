"""CIFAR-10-C folders: mapped, not read; wrong shapes, types and labels are named."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr import datasets
from tapr.datasets.catalogue import CIFAR10C
from tapr.datasets.download import Web
from tapr.datasets.published import PublishedSet
from tapr.errors import DataError

LABELS = np.array([3, 8, 0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three images, five severities, two corruptions; every pixel says which image it is."""
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    images = np.repeat(np.arange(15, dtype=np.uint8), 3072).reshape(15, 32, 32, 3)
    np.save(folder / "fog.npy", images)
    np.save(folder / "snow.npy", 255 - images)
    np.save(folder / "labels.npy", np.tile(LABELS, 5).astype(np.uint8))
    return folder


def test_from_a_folder(folder: Path, watch: Any) -> None:
    CIFAR10C.get(watch, folder)
    assert CIFAR10C.where() == folder
    assert CIFAR10C.verify(watch) == []
    for severity in range(1, 6):
        data = datasets.load("cifar10c", split=f"snow-{severity}")
        first = 255 - 3 * (severity - 1)
        assert isinstance(data.images, np.memmap)
        assert data.images[:, 0, 0, 0].tolist() == [first, first - 1, first - 2]
        np.testing.assert_array_equal(data.labels, LABELS)
        assert data.classes[8] == "ship"


def test_the_folder_above_will_do(folder: Path, watch: Any) -> None:
    CIFAR10C.get(watch, folder.parent)
    assert CIFAR10C.where() == folder


def test_has(folder: Path, watch: Any) -> None:
    assert not CIFAR10C.has(["fog"])
    CIFAR10C.get(watch, folder)
    assert CIFAR10C.has(["fog", "snow"])
    assert not CIFAR10C.has(["fog", "frost"])


def test_downloaded(
    folder: Path, make_tar: Callable[[Path], Path], server: Any, watch: Any, cache_folder: Path
) -> None:
    archive = folder.with_suffix(".tar")
    with tarfile.open(archive, "w") as tar:
        tar.add(folder, "CIFAR-10-C")
        outside = tarfile.TarInfo("../../escaped.npy")
        tar.addfile(outside, io.BytesIO(b""))
    server.content = archive.read_bytes()
    checksum = "md5:" + hashlib.md5(server.content).hexdigest()
    (folder / "labels.npy").unlink()
    here = PublishedSet(
        "cifar10c", "", "", "cifar10", CIFAR10C.classes,
        Web(server.url, len(server.content), checksum), "",
    )  # fmt: skip
    with pytest.raises(DataError, match=r"escaped\.npy is not a whole \.npy file"):
        here.get(watch)
    assert not (cache_folder.parent / "escaped.npy").exists()
    (cache_folder / "cifar10c" / "escaped.npy").unlink()
    here.get(watch, cache_folder / "cifar10c")
    assert len(here.load("fog-5")) == 3
    here.get(watch)
    assert len(server.asked) == 1
    assert not (cache_folder / "cifar10c" / "download").exists()


def test_not_here() -> None:
    with pytest.raises(DataError, match=r"the published cifar10c is not here; .*--from PATH"):
        datasets.load("cifar10c", split="fog-5")


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("fog-0", "a severity from 1 to 5, got 'fog-0'"),
        ("fog-6", "a severity from 1 to 5, got 'fog-6'"),
        ("test", "expected a split like 'fog-5'"),
        ("fgo-5", "has no corruption 'fgo'; did you mean 'fog'"),
    ],
)
def test_unknown_splits(folder: Path, watch: Any, split: str, message: str) -> None:
    CIFAR10C.get(watch, folder)
    with pytest.raises(DataError, match=message):
        datasets.load("cifar10c", split=split)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (
            "fog",
            np.zeros((14, 32, 32, 3), np.uint8),
            r"\[15, 32, 32, 3\], got .* \[14, 32, 32, 3\]",
        ),
        ("fog", np.zeros((15, 3, 32, 32), np.uint8), r"got uint8 of shape \[15, 3, 32, 32\]"),
        ("fog", np.zeros((15, 32, 32, 3)), "expected uint8 .* got float64"),
        ("labels", np.zeros(10, np.int64), r"expected uint8 of shape \[10, 32, 32, 3\]"),
        ("labels", np.zeros(14, np.int64), "expected whole numbers, one per image and severity"),
        ("labels", np.zeros(15), "expected whole numbers"),
        ("labels", np.zeros((15, 1), np.int64), "expected whole numbers"),
        ("labels", np.tile([1, 2, 10], 5), "expected labels from 0 to 9, got 1 to 10"),
        ("labels", np.tile([1, 2, -1], 5), "expected labels from 0 to 9, got -1 to 2"),
        ("labels", np.arange(15) % 7, "expected the same labels at each of the 5 severities"),
        ("labels", np.tile(np.zeros(10_000, np.int64), 5), "not those of the cifar10 test set"),
    ],
)
def test_wrong_files(folder: Path, watch: Any, file: str, array: Any, message: str) -> None:
    np.save(folder / f"{file}.npy", array)
    with pytest.raises(DataError, match=rf"\.npy: .*{message}"):
        CIFAR10C.get(watch, folder)
    assert CIFAR10C.where() is None


def test_damaged_files(folder: Path, watch: Any) -> None:
    CIFAR10C.get(watch, folder)
    fog = folder / "fog.npy"
    fog.write_bytes(fog.read_bytes()[:-1])
    assert "fog.npy is not a whole .npy file" in CIFAR10C.verify(watch)[0]
    np.save(folder / "labels.npy", np.array([{}] * 15, object), allow_pickle=True)
    assert "labels.npy is not a whole .npy file" in CIFAR10C.verify(watch)[0]
    (folder / "labels.npy").unlink()
    assert "labels.npy is missing" in CIFAR10C.verify(watch)[0]


def test_wrong_folder(tmp_path: Path, watch: Any) -> None:
    with pytest.raises(DataError, match=r"to be a folder with labels\.npy"):
        CIFAR10C.get(watch, tmp_path)
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5))
    with pytest.raises(DataError, match=r"has labels\.npy but no corruption"):
        CIFAR10C.get(watch, tmp_path)


def test_a_damaged_link_is_no_link(folder: Path, watch: Any, cache_folder: Path) -> None:
    CIFAR10C.get(watch, folder)
    for text in ("{", "[1]", '{"path": "relative"}'):
        (cache_folder / "cifar10c" / "link.json").write_text(text)
        assert CIFAR10C.where() is None
