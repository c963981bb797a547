"""The three official forms of CIFAR decode to the same arrays; damaged ones are named."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.datasets.cifar import read_cifar10, read_cifar100
from tapr.errors import DataError


def _assert_equal(came: Any, expected: Any) -> None:
    assert came.keys() == expected.keys()
    for split in expected:
        for one, other in zip(came[split], expected[split], strict=True):
            np.testing.assert_array_equal(one, other)
            assert one.dtype == other.dtype
            assert one.flags.c_contiguous


def test_official_folder_and_archive(
    make_official: Callable[[str], Path], make_tar: Callable[[Path], Path], arrays: Any
) -> None:
    for name, reader in (("cifar10", read_cifar10), ("cifar100", read_cifar100)):
        folder = make_official(name)
        _assert_equal(reader(folder), arrays)
        _assert_equal(reader(make_tar(folder)), arrays)
        _assert_equal(reader(folder.parent), arrays)


def test_npm_package(npm_package: Path, arrays: Any) -> None:
    _assert_equal(read_cifar10(npm_package), arrays)


@pytest.mark.parametrize("keep", [0, 50, 0.5, 0.99])
def test_truncated_archive(
    make_official: Callable[[str], Path], make_tar: Callable[[Path], Path], keep: float
) -> None:
    archive = make_tar(make_official("cifar10"))
    data = archive.read_bytes()
    archive.write_bytes(data[: int(keep if keep > 1 else keep * len(data))])
    with pytest.raises(DataError, match=r"tar\.gz is not a whole tar archive"):
        read_cifar10(archive)


def test_wrong_archive(make_official: Callable[[str], Path], npm_package: Path) -> None:
    folder = make_official("cifar100")
    with pytest.raises(DataError, match=r"to hold data_batch_1, .*test_batch; it does not"):
        read_cifar10(folder)
    with pytest.raises(DataError, match="to hold test, train; it does not"):
        read_cifar100(npm_package)
    with pytest.raises(DataError, match=r"but .*nowhere does not exist"):
        read_cifar100(folder / "nowhere")


ROWS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": ROWS}, "expected the keys data and fine_labels, without fine_labels"),
        ({b"fine_labels": []}, "without data"),
        (
            {b"data": ROWS[:, :-1], b"fine_labels": [0, 1]},
            r"expected uint8 rows of 3072 values, got uint8 of shape \[2, 3071\]",
        ),
        ({b"data": ROWS.astype(float), b"fine_labels": [0, 1]}, "got float64"),
        ({b"data": [1, 2], b"fine_labels": [0, 1]}, "got list"),
        ({b"data": ROWS, b"fine_labels": [0, 1, 2]}, "3 labels for 2 images"),
        ({b"data": ROWS, b"fine_labels": [0, "1"]}, "expected a list of whole numbers"),
    ],
)
def test_wrong_content(
    make_official: Callable[[str], Path], content: dict[bytes, Any], message: str
) -> None:
    folder = make_official("cifar100")
    (folder / "test").write_bytes(pickle.dumps(content))
    with pytest.raises(DataError, match=f"test: .*{message}|test: {message}"):
        read_cifar100(folder)
