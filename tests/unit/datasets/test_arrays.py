"""The cache: filled once, verified at every load, mended, safe under kills and company."""

import errno
import hashlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr import cache
from tapr.datasets.arrays import PARTS, ArraySet
from tapr.datasets.cifar import read_cifar100
from tapr.datasets.download import Source, Web
from tapr.errors import DataError


class Broken(Source):
    def fetch(self, folder: Path, watch: Any) -> Path:
        raise DataError("out of order")


@pytest.fixture
def small(
    make_official: Callable[[str], Path],
    make_tar: Callable[[Path], Path],
    arrays: Any,
    server: Any,
) -> ArraySet:
    """A tiny CIFAR-100 from a source that is out of order and one that delivers."""
    server.content = make_tar(make_official("cifar100")).read_bytes()
    checksum = "sha256:" + hashlib.sha256(server.content).hexdigest()
    return ArraySet(
        name="small",
        about="",
        size="",
        classes=tuple("0123456789"),
        sources=(Broken("nowhere", 0, ""), Web(server.url, len(server.content), checksum)),
        decode=read_cifar100,
        hashes={
            (split, part): cache.sha256(arrays[split][place])
            for split in ("test", "train")
            for place, part in enumerate(PARTS)
        },
    )


def test_fetched_once_then_offline(small: ArraySet, server: Any, arrays: Any, watch: Any) -> None:
    assert small.where() is None
    small.get(watch)
    assert [note.split(" (")[0] for note in watch.notes[:3]] == [
        "trying nowhere",
        "failed: out of order",
        f"trying {server.url}",
    ]
    assert small.where() == cache.folder() / "small"
    assert sorted(path.name for path in cache.folder().glob("small/*")) == [
        f"{split}-{part}.npy" for split in ("test", "train") for part in PARTS
    ]
    server.status = 500
    small.get(watch)
    for split in ("test", "train"):
        data = small.load(split)
        np.testing.assert_array_equal(data.images, arrays[split][0])
        np.testing.assert_array_equal(data.labels, arrays[split][1])
    assert len(server.asked) == 1


def test_load_fetches(small: ArraySet) -> None:
    assert len(small.load("train")) == 10


def test_unknown_split(small: ArraySet) -> None:
    with pytest.raises(DataError, match="no split 'tset'; did you mean 'test'"):
        small.load("tset")


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove", "pickle"])
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_cache_is_found_and_mended(
    small: ArraySet, server: Any, arrays: Any, watch: Any, damage: str, part: str
) -> None:
    small.get(watch)
    path = cache.folder() / "small" / f"test-{part}.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    changed = {"flip": bytes(data), "truncate": bytes(data[:-5]), "empty": b"", "pickle": b"\x80"}
    path.write_bytes(changed.get(damage, b""))
    if damage == "remove":
        path.unlink()
    problems = small.verify(watch)
    assert len(problems) == 1
    assert str(path) in problems[0]
    np.testing.assert_array_equal(small.load("test").images, arrays["test"][0])
    assert len(server.asked) == 2
    assert small.verify(watch) == []


def test_from_a_folder(
    small: ArraySet, make_official: Callable[[str], Path], server: Any, watch: Any
) -> None:
    folder = make_official("cifar100")
    small.get(watch, folder)
    assert server.asked == []
    assert small.verify(watch) == []
    assert (folder / "test").exists(), "the user's own files stay"


def test_other_data_is_refused_and_nothing_kept(
    small: ArraySet, make_official: Callable[[str], Path], arrays: Any, watch: Any
) -> None:
    arrays["test"][0][0, 0, 0, 0] ^= 1
    with pytest.raises(DataError, match="is not small: expected test images with sha256"):
        small.get(watch, make_official("cifar100"))
    assert list(cache.folder().glob("small/*")) == []


def test_half_files_of_a_killed_process_go(small: ArraySet, watch: Any) -> None:
    with cache.locked("small") as folder:
        left_over = folder / ".test-images.npy.abc.part"
        left_over.write_text("half")
    small.get(watch)
    assert not left_over.exists()


def test_cache_that_cannot_be_written(
    small: ArraySet, watch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"cannot write .*file/cache.*set TAPR_CACHE to a folder"):
        small.get(watch)


@pytest.mark.parametrize("where", ["np.save", "download"])
def test_full_disk(
    small: ArraySet, watch: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "np.save":
        monkeypatch.setattr(np, "save", full)
    else:
        monkeypatch.setattr(Path, "open", full)
    with pytest.raises(DataError, match=r"No space left on device; free space there, or set TAPR"):
        small.get(watch)
    assert list(cache.folder().glob("small/*")) == []


SCRIPT = """
import sys
from pathlib import Path
from tapr.datasets.arrays import ArraySet
from tapr.datasets.base import Logged
from tapr.datasets.cifar import read_cifar100
from tapr.datasets.download import Web
url, size, checksum = sys.argv[1:4]
hashes = {tuple(item.split("-")): value for item, value in (a.split("=") for a in sys.argv[4:])}
small = ArraySet("small", "", "", tuple("0123456789"), (Web(url, int(size), checksum),),
                 read_cifar100, hashes)
print("ready", flush=True)
print(len(small.load("test")), flush=True)
"""


def _start(small: ArraySet) -> "subprocess.Popen[str]":
    source = small.sources[1]
    hashes = [f"{split}-{part}={value}" for (split, part), value in small.hashes.items()]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source.address, str(source.size), source.checksum, *hashes],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_killed_download_goes_on(small: ArraySet, server: Any, watch: Any) -> None:
    server.stop_after, server.stall = 4000, True
    with _start(small) as process:
        part = cache.folder() / "small" / "download" / "small.tar.gz.part"
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and not (part.exists() and part.stat().st_size):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    half = part.stat().st_size
    assert 0 < half < len(server.content)
    server.stop_after, server.stall = None, False
    small.get(watch)
    assert small.verify(watch) == []
    assert server.asked == [None, f"bytes={half}-"]
    assert not part.parent.exists()


def test_two_processes_at_once(small: ArraySet, server: Any, watch: Any) -> None:
    server.hold = threading.Event()
    processes = [_start(small), _start(small)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)  # both are at it now: one downloads, one waits
    server.hold.set()
    assert [process.communicate(timeout=60)[0] for process in processes] == ["4\n"] * 2
    assert [process.returncode for process in processes] == [0, 0]
    assert len(server.asked) == 1, "the second waits for the first and finds the data there"
    assert small.verify(watch) == []
