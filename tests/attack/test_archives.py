"""Damaged tar archives and pickles: each is read, or refused by a sentence; nothing is run.

`TAPR_ATTACK=N`: 230 N files are tried, per reader.
"""

import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.datasets.cifar import read_cifar100
from tapr.datasets.members import read_members
from tapr.datasets.visda import TarFiles
from tapr.errors import DataError, TaprError

FILES = 230 * int(os.environ.get("TAPR_ATTACK", "1"))


def archive(compression: str) -> bytes:
    """A tiny CIFAR-100, as it is published."""
    content = {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [3, 99]}
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}", format=tarfile.PAX_FORMAT) as tar:  # type: ignore[call-overload]
        for name in ("train", "test"):
            data = pickle.dumps(content, protocol=2)
            member = tarfile.TarInfo(f"cifar-100-python/{name}")
            member.size, member.pax_headers = len(data), {"comment": "hello"}
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def names_of_tar(path: Path) -> object:
    files = TarFiles(path)
    return [files.has(name) for name in ("train", "test")]


READERS: dict[str, Callable[[Path], object]] = {
    "members": lambda path: read_members(path, ["train", "test"]),
    "cifar100": read_cifar100,
    "visda": names_of_tar,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize("compression", ["", "gz", "bz2"])
def test_a_damaged_archive_is_read_or_a_sentence(
    read: Callable[[Path], object], compression: str, tmp_path: Path, tally: Any
) -> None:
    random, path = np.random.default_rng(11), tmp_path / "archive.tar"
    whole = np.frombuffer(archive(compression), np.uint8)
    for number in range(FILES // 3 + 1):
        data = whole.copy()
        # Mostly the headers: in the middle of a tar are only zeros, or compressed ones.
        places = random.integers(0, min(len(data), (2048, len(data))[number % 2]), 4)
        data[places] = random.integers(0, 256, 4)
        path.write_bytes(
            data[: random.integers(1, len(data)) if number % 5 == 0 else None].tobytes()
        )
        tally.attempt("fuzzed archives", f"{compression}, file {number}", lambda: wrong(read, path))
    assert tally.sentences
    assert tally.results or compression


def wrong(read: Callable[[Path], object], path: Path) -> str | None:
    """What is wrong with what was read; only a `DataError` says that nothing was."""
    try:
        read(path)
    except DataError:
        raise
    except TaprError as error:
        return f"{error!r} instead of a DataError"
    return None
