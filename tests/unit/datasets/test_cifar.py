"""The three official forms of CIFAR decode to the same arrays; nothing in a hostile one runs."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.datasets.cifar import read_cifar10, read_cifar100, read_pickle
from tapr.errors import DataError

ROWS = np.arange(6, dtype=np.uint8).reshape(2, 3)


class Hostile:
    """Unpickled the usual way, this calls whatever it was given."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


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


@pytest.mark.parametrize("protocol", range(5))
def test_reads_old_protocols(protocol: int) -> None:
    content = read_pickle(pickle.dumps({b"data": ROWS, b"labels": [1, 2]}, protocol), "file")
    np.testing.assert_array_equal(content[b"data"], ROWS)
    assert content[b"labels"] == [1, 2]


def test_reads_what_python_2_and_old_numpy_wrote() -> None:
    data = pickle.dumps({"data": ROWS}, protocol=2)
    data = data.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    np.testing.assert_array_equal(read_pickle(data, "file")[b"data"], ROWS)


def test_a_hostile_file_is_refused_and_does_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    attack = pickle.dumps({b"data": Hostile(os.mkdir, str(victim))}, protocol=2)
    pickle.loads(attack)
    assert victim.is_dir(), "the attack must work on an ordinary unpickler for this to be a test"
    victim.rmdir()
    with pytest.raises(DataError, match=r"it asks for \w+\.mkdir, which no data file needs"):
        read_pickle(attack, "file")
    assert not victim.exists()


@pytest.mark.parametrize(
    "call",
    [
        Hostile(eval, "1"),
        Hostile(getattr, "x", "upper"),
        Hostile(np.load, "x"),
        Hostile(np.frombuffer, b"x"),
    ],
    ids=["eval", "getattr", "np.load", "np.frombuffer"],
)
def test_other_names_are_refused(call: Hostile) -> None:
    with pytest.raises(DataError, match="which no data file needs"):
        read_pickle(pickle.dumps({b"data": call}, protocol=2), "file")


def test_encode_serves_latin1_only() -> None:
    import _codecs

    with pytest.raises(DataError, match="refused to encode as rot13"):
        read_pickle(pickle.dumps({b"x": Hostile(_codecs.encode, "x", "rot13")}, 2), "file")


@pytest.mark.parametrize("data", [b"", b"not a pickle", pickle.dumps({b"data": ROWS})[:-9]])
def test_a_damaged_pickle(data: bytes) -> None:
    with pytest.raises(DataError, match="test_batch is not an official CIFAR file"):
        read_pickle(data, "test_batch")


def test_a_pickle_that_is_not_a_dictionary() -> None:
    with pytest.raises(DataError, match="expected a pickled dictionary, got list"):
        read_pickle(pickle.dumps([1]), "file")
