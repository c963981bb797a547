"""Reading files that others made: regular ones only, by name out of a folder or a tar archive.

Nothing of an archive is unpacked but in memory, and only what is a file there: no link is followed,
and no path in it is ever used, so it cannot lead out of a folder.
"""

import bz2
import gzip
import io
import os
import stat
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from tapr.errors import DataError

LARGEST = 1 << 31  # bytes of a file that is read into memory
_CHUNK = 1 << 20
_PACKED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def check_regular(path: Path) -> os.stat_result:
    """Refuse, before it is opened, what may never end: a FIFO, a device, a socket; or a folder."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise DataError(getattr(error, "strerror", None) or str(error)) from error
    if not stat.S_ISREG(found.st_mode):
        raise DataError("not a regular file")
    return found


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file, or of one that a link leads to; DataError says why not."""
    if check_regular(path).st_size > LARGEST:
        raise _too_large(path.name)
    try:
        with path.open("rb") as file:
            return _bounded(file, path.name)
    except OSError as error:
        raise DataError(error.strerror or str(error)) from error


def read_members(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The bytes of the `wanted` files, by base name, wherever below `path` they are."""
    if not path.exists():
        raise DataError(f"expected a folder or an archive, but {path} does not exist")
    found = _from_folder(path, wanted) if path.is_dir() else _from_tar(path, wanted)
    return _all(path, wanted, found)


def read_packed(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """Like `read_members`; each file may also be there as a .gz or a .bz2."""
    found = find_packed(path, wanted) if path.is_dir() else read_members(path, wanted)
    return _all(path, wanted, found)


def find_packed(folder: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The bytes of those of the `wanted` files that are below `folder`, unpacked if need be."""
    packed = {name + suffix: name for name in wanted for suffix in _PACKED}
    contents = _from_folder(folder, {*wanted, *packed})
    unpacked = {
        name: _unpack(contents[file], folder / file)
        for file, name in packed.items()
        if file in contents and name not in contents
    }
    return unpacked | {name: contents[name] for name in wanted if name in contents}


@contextmanager
def opened_tar(path: Path, compression: Literal["*", ""] = "*") -> Iterator[tarfile.TarFile]:
    """Open a tar archive; whatever a damaged one raises while it is read becomes a DataError."""
    what = "whole tar archive" if compression else "whole, uncompressed tar archive"
    try:
        check_regular(path)
    except DataError as error:
        raise DataError(f"cannot read the archive {path}: {error}") from error
    try:
        with tarfile.open(path, "r:*" if compression else "r:") as archive:
            yield archive
    except DataError:
        raise
    except Exception as error:  # a damaged tar may raise anything at all
        reason = str(error).partition("\n")[0].rstrip(":")  # the rest: what each decoder says
        raise DataError(f"{path} is not a {what}: {reason or type(error).__name__}") from error


def open_member(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    """The content of a file in a tar; a link or a device there is refused."""
    file = archive.extractfile(member) if member.isreg() else None
    if file is None:
        raise DataError(
            f"{archive.name!s}: expected {member.name} to be a file, it is a link or a device"
        )
    return file


def _from_tar(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    with opened_tar(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if name in wanted and not member.isdir():
                found[name] = _bounded(open_member(archive, member), f"{path}: {name}")
            if len(found) == len(wanted):
                break
    return found


def _from_folder(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    try:
        candidates = [file for file in sorted(path.rglob("*")) if file.name in wanted]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    found = {}
    for file in candidates:
        if not file.is_dir():
            try:
                found[file.name] = read_regular(file)
            except DataError as error:
                raise DataError(f"cannot read {file}: {error}") from error
    return found


def _unpack(data: bytes, path: Path) -> bytes:
    try:
        with _PACKED[path.suffix](io.BytesIO(data)) as file:
            return _bounded(file, str(path))
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{path} is not a whole {path.suffix} file: {error}") from error


def _bounded(file: IO[bytes], what: str) -> bytes:
    data = bytearray()
    while chunk := file.read(_CHUNK):
        data += chunk
        if len(data) > LARGEST:
            raise _too_large(what)
    return bytes(data)


def _too_large(what: str) -> DataError:
    return DataError(f"{what}: expected a file of at most {LARGEST >> 30} GiB, it is larger")


def _all(path: Path, wanted: Collection[str], found: dict[str, bytes]) -> dict[str, bytes]:
    missing = sorted(set(wanted) - found.keys())
    if missing:
        raise DataError(f"expected {path} to hold {', '.join(missing)}; it does not")
    return found
