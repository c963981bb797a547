"""The official pickles are read; nothing in a hostile one runs."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.datasets.pickles import read_pickle
from tapr.errors import DataError

ROWS = np.arange(6, dtype=np.uint8).reshape(2, 3)


class Hostile:
    """Unpickled the usual way, this calls whatever it was given."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


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
def test_damaged(data: bytes) -> None:
    with pytest.raises(DataError, match="test_batch is not an official CIFAR file"):
        read_pickle(data, "test_batch")


def test_not_a_dictionary() -> None:
    with pytest.raises(DataError, match="expected a pickled dictionary, got list"):
        read_pickle(pickle.dumps([1]), "file")
