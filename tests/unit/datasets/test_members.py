"""Hostile archives: links, devices, paths that lead out, bombs and pipes are all sentences."""

import bz2
import gzip
import io
import os
import tarfile
from pathlib import Path

import pytest

from tapr import datasets
from tapr.datasets import members
from tapr.datasets.catalogue import CIFAR10C
from tapr.datasets.cifar import CIFAR10_FILES, read_cifar10
from tapr.datasets.members import find_packed, open_member, opened_tar, read_members
from tapr.datasets.published import _unpack
from tapr.datasets.visda import TarFiles
from tapr.errors import DataError


def header(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def tar(path: Path, *entries: tarfile.TarInfo | tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for entry in entries:
            if isinstance(entry, tarfile.TarInfo):
                archive.addfile(entry)
            else:
                name, content = entry
                member = header(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return path


LINKS = {
    "symbolic": header("labels.npy", tarfile.SYMTYPE, "/etc/passwd"),
    "hard": header("labels.npy", tarfile.LNKTYPE, "nowhere"),
    "device": header("labels.npy", tarfile.CHRTYPE),
    "pipe": header("labels.npy", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
def test_a_link_in_an_archive_is_not_followed(tmp_path: Path, link: tarfile.TarInfo) -> None:
    path = tar(tmp_path / "a.tar", link)
    with pytest.raises(DataError, match=r"a\.tar: expected labels\.npy to be a file, it is a link"):
        read_members(path, ["labels.npy"])
    with pytest.raises(DataError, match="it is a link"):
        _unpack(path, tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))
    assert not TarFiles(path).has("labels.npy")


def test_no_path_in_an_archive_leads_out_of_the_folder(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    hostile = ["../../fog.npy", str(tmp_path / "snow.npy"), "..", "../.npy", "x/..\\frost.npy"]
    _unpack(tar(tmp_path / "a.tar", *((name, b"hello") for name in hostile)), out)
    assert sorted(path.name for path in out.iterdir()) == ["fog.npy", "snow.npy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "deep"]


def test_a_huge_png_in_an_archive(tmp_path: Path) -> None:
    bomb = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\0\0\0\0"
    names = [f"{name}.png" for files in CIFAR10_FILES.values() for name in files]
    labels = ["train_lables.json", "test_lables.json"]
    path = tar(tmp_path / "a.tgz", *((name, bomb) for name in [*names, *labels]))
    with pytest.raises(DataError, match=r"data_batch_1\.png is not a readable picture"):
        read_cifar10(path)


def test_an_archive_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(DataError, match=r"cannot read the archive .*: not a regular file"):
        datasets.DATASETS["cifar10"].get(datasets.base.Logged(), tmp_path / "pipe.tar")
    folder = tmp_path / "folder"
    folder.mkdir()
    os.mkfifo(folder / "labels")
    with pytest.raises(DataError, match=r"cannot read .*labels: not a regular file"):
        read_members(folder, ["labels"])


def test_a_published_file_that_is_a_pipe_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fog.npy")
    with pytest.raises(DataError, match=r"fog\.npy is not a regular file"):
        CIFAR10C._images(tmp_path, "fog", 5)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress], ids=[".gz", ".bz2"])
def test_a_packed_file_that_grows_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: object
) -> None:
    assert callable(pack)
    name = f"usps.{'gz' if pack is gzip.compress else 'bz2'}"
    (tmp_path / name).write_bytes(pack(bytes(3 << 20)))
    assert len(find_packed(tmp_path, ["usps"])["usps"]) == 3 << 20
    monkeypatch.setattr(members, "LARGEST", 2 << 20)
    with pytest.raises(DataError, match="expected a file of at most"):
        find_packed(tmp_path, ["usps"])
    path = tar(tmp_path / "a.tgz", ("usps", bytes(3 << 20)))
    with pytest.raises(DataError, match="expected a file of at most"):
        read_members(path, ["usps"])


def test_a_member_is_read_as_it_is(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tgz", ("x/labels", b"hello"))
    assert read_members(path, ["labels"]) == {"labels": b"hello"}
    with opened_tar(path) as archive:
        assert [open_member(archive, member).read() for member in archive] == [b"hello"]
