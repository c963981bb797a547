"""Downloads resume, restart, refuse what is wrong, and name every source they tried."""

import hashlib
import stat
from pathlib import Path
from typing import Any

import pytest

from tapr.datasets.download import Npm, Web, fetch_first
from tapr.errors import DataError

CONTENT = bytes(range(256)) * 12_000  # three reads of a chunk each


@pytest.fixture
def web(server: Any) -> Web:
    server.content = CONTENT
    checksum = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
    return Web(server.url, len(CONTENT), checksum)


def test_whole(web: Web, tmp_path: Path, watch: Any) -> None:
    archive = web.fetch(tmp_path, watch)
    assert archive == tmp_path / "small.tar.gz"
    assert archive.read_bytes() == CONTENT
    assert list(tmp_path.glob("*.part")) == []
    assert watch.steps[-1] == (len(CONTENT), len(CONTENT))


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_connection_is_resumed(
    web: Web, server: Any, tmp_path: Path, watch: Any, ranges: bool
) -> None:
    server.stop_after = 2_000_000
    with pytest.raises(DataError, match=f"2000000 of {len(CONTENT)} bytes; run again to resume"):
        web.fetch(tmp_path, watch)
    server.stop_after, server.ranges = None, ranges
    assert web.fetch(tmp_path, watch).read_bytes() == CONTENT
    assert server.asked == [None, "bytes=2000000-"]
    assert ("resuming after 2 MB" in watch.notes) == ranges


def test_a_wrong_file_is_refused_and_removed(
    web: Web, server: Any, tmp_path: Path, watch: Any
) -> None:
    server.content = CONTENT[::-1]
    with pytest.raises(DataError, match="expected an archive with sha256"):
        web.fetch(tmp_path, watch)
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_is_too_long_starts_again(web: Web, tmp_path: Path, watch: Any) -> None:
    (tmp_path / "small.tar.gz.part").write_bytes(CONTENT + b"x")
    assert web.fetch(tmp_path, watch).read_bytes() == CONTENT


def test_server_error(web: Web, server: Any, tmp_path: Path, watch: Any) -> None:
    server.status = 404
    with pytest.raises(DataError, match="the server answered 404"):
        web.fetch(tmp_path, watch)


def test_no_network_names_every_attempt(tmp_path: Path, watch: Any) -> None:
    sources = [Web(f"http://127.0.0.1:9/{name}.tar", 1_000_000, "md5:0") for name in "ab"]
    with pytest.raises(DataError, match=r"cannot fetch thing .*9/a.tar: .*9/b.tar: .*--from"):
        fetch_first("thing", sources, tmp_path / "new", watch)
    assert [note.split(":")[0] for note in watch.notes] == ["trying http", "failed"] * 2
    assert watch.notes[0].endswith("a.tar (1 MB)")


@pytest.fixture
def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "npm"
    script.write_text('#!/bin/sh\necho "$@" > arguments\nprintf packed > thing-1.0.tgz\n')
    script.chmod(script.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return script


NPM = Npm("thing@1.0", 6, "sha256:" + hashlib.sha256(b"packed").hexdigest())


def test_npm(fake_npm: Path, tmp_path: Path, watch: Any) -> None:
    room = tmp_path / "thing-1.0"
    room.mkdir()
    (room / "half.tgz").write_text("of a killed run")
    archive = fetch_first("thing", [NPM], tmp_path, watch)
    assert archive.read_bytes() == b"packed"
    assert (room / "arguments").read_text().startswith("pack thing@1.0 ")
    assert watch.notes == ["trying npm pack thing@1.0 (0 MB)"]


def test_npm_fails(fake_npm: Path, tmp_path: Path, watch: Any) -> None:
    fake_npm.write_text("#!/bin/sh\necho npm error code ETARGET >&2\nexit 3\n")
    with pytest.raises(DataError, match="npm ended with status 3: code ETARGET"):
        NPM.fetch(tmp_path, watch)
    assert not (tmp_path / "thing-1.0").exists()


def test_npm_on_a_full_disk_is_no_reason_to_try_other_sources(
    fake_npm: Path, tmp_path: Path, watch: Any
) -> None:
    fake_npm.write_text("#!/bin/sh\necho npm error code ENOSPC >&2\nexit 228\n")
    with pytest.raises(OSError, match="No space left on device"):
        fetch_first("thing", [NPM, NPM], tmp_path, watch)


def test_npm_is_absent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watch: Any) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match="the npm client is not installed"):
        NPM.fetch(tmp_path, watch)
