"""Files by name out of a folder or a tar archive, without unpacking anything."""

import tarfile
import zlib
from collections.abc import Collection
from pathlib import Path, PurePosixPath

from tapr.errors import DataError

_DAMAGE = (tarfile.TarError, EOFError, OSError, zlib.error)


def read_members(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The bytes of the `wanted` files, by base name, wherever below `path` they are."""
    if not path.exists():
        raise DataError(f"expected a folder or an archive, but {path} does not exist")
    found = _from_folder(path, wanted) if path.is_dir() else _from_tar(path, wanted)
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
        raise DataError(f"{path} is not a whole tar archive: {error}") from error
    return found
