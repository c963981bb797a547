"""Files by name out of a folder or a tar archive; nothing is unpacked but in memory."""

import bz2
import gzip
import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tapr.errors import DataError

_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error)
_PACKED = {".gz": gzip.decompress, ".bz2": bz2.decompress}


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


def _unpack(data: bytes, path: Path) -> bytes:
    try:
        return _PACKED[path.suffix](data)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise DataError(f"{path} is not a whole {path.suffix} file: {error}") from error


def _all(path: Path, wanted: Collection[str], found: dict[str, bytes]) -> dict[str, bytes]:
    missing = sorted(set(wanted) - found.keys())
    if missing:
        raise DataError(f"expected {path} to hold {', '.join(missing)}; it does not")
    return found


def _from_folder(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    candidates = (file for file in sorted(path.rglob("*")) if file.name in wanted)
    try:
        return {file.name: file.read_bytes() for file in candidates if file.is_file()}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _from_tar(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                file = archive.extractfile(member) if name in wanted else None
                if file is not None:
                    found[name] = file.read()
                if len(found) == len(wanted):
                    break
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0].rstrip(":")  # the rest: what each decoder says
        raise DataError(f"{path} is not a whole tar archive: {reason}") from error
    return found
