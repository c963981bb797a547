"""The cache folder: where it is, one writer at a time, hashes of what is in it."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from platformdirs import user_cache_path

from tapr import files
from tapr.errors import DataError

VARIABLE = "TAPR_CACHE"


def folder() -> Path:
    """Return the cache folder: $TAPR_CACHE, else the platform's own; it may not exist yet."""
    chosen = os.environ.get(VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else user_cache_path("tapr")


def cannot_write(path: Path, error: OSError) -> DataError:
    """Return the error for a cache that is read-only or full, with advice."""
    return DataError(
        f"cannot write {path}: {error.strerror or error}; "
        f"free space there, or set {VARIABLE} to a folder that can be written"
    )


@contextmanager
def locked(name: str) -> Iterator[Path]:
    """Hold the cache's lock called `name`, so that one process at a time fills that part of it.

    Yields the part's folder, which then exists. The lock goes with the process: a killed one
    leaves nothing to clean up but half files, which the next holder may remove.
    """
    part = folder() / name
    try:
        part.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder() / f".{name}.lock")
        lock.acquire()
    except OSError as error:
        raise cannot_write(part, error) from error
    try:
        yield part
    finally:
        lock.release()


@contextmanager
def writing(path: Path) -> Iterator[Path]:
    """Like `files.atomic`, with advice for a cache that cannot be written."""
    try:
        with files.atomic(path) as part:
            yield part
    except DataError as error:
        if isinstance(error.__cause__, OSError):
            raise cannot_write(path, error.__cause__) from error
        raise


def sha256(what: NDArray[np.generic] | Path) -> str:
    """The sha256, in hex, of a file's bytes or of an array's values in C order.

    >>> sha256(np.zeros(3, np.uint8))[:8]
    '709e80c8'
    """
    if isinstance(what, Path):
        with what.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    return hashlib.sha256(np.ascontiguousarray(what).data).hexdigest()
