"""The list of images to predict: a folder, a text file of paths, or paths on standard input."""

import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from tapr.datasets.images import SUFFIXES
from tapr.errors import DataError, InputError
from tapr.rng import derive

STDIN = "-"


class Listing(NamedTuple):
    """Paths of images, in the order in which they are predicted."""

    names: Iterable[str]  # as they are written down
    root: Path  # the folder that they are relative to
    total: int | None  # None: they come one by one from standard input


def find(source: str, *, shuffle: bool = False, seed: int = 0) -> Listing:
    """The images below a folder, in a text file with one path per line, or (`-`) on stdin.

    With `shuffle` they are mixed; without it a folder is in the order of its paths.
    """
    if source == STDIN:
        listing = Listing(_lines(_stdin()), Path(), None)
    elif Path(source).is_dir():
        names = list(_below(Path(source)))
        if not names:
            raise DataError(f"expected images ({', '.join(SUFFIXES)}) below {source}, found none")
        listing = Listing(names, Path(source), len(names))
    else:
        names = _read_list(Path(source))
        listing = Listing(names, Path(), len(names))
    return _shuffled(listing, seed) if shuffle else listing


def _shuffled(listing: Listing, seed: int) -> Listing:
    names = list(listing.names)
    order = np.random.Generator(np.random.PCG64(derive(seed, "listing"))).permutation(len(names))
    return Listing([names[number] for number in order], listing.root, len(names))


def _below(folder: Path, before: str = "") -> Iterator[str]:
    """Sorted paths of images relative to the folder, without hidden ones and links to folders."""
    try:
        entries = sorted(os.scandir(folder / before), key=lambda entry: entry.name)
    except OSError as error:
        raise DataError(f"cannot read {folder / before}: {error.strerror or error}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _below(folder, f"{before}{entry.name}/")
        elif entry.name.lower().endswith(SUFFIXES):
            yield f"{before}{entry.name}"


def _read_list(path: Path) -> list[str]:
    if path.suffix.lower() in SUFFIXES:
        raise InputError(f"expected a folder, a text file that lists images, or -, got {path}")
    try:
        if not _may_be_read(path):
            raise DataError(f"expected a text file with one path per line, but {path} is a device")
        with path.open(encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            names = list(_lines(file))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    if not names or any("\0" in name for name in names[:1]):
        raise DataError(f"expected a text file with one path per line, but {path} is not one")
    return names


def _may_be_read(path: Path) -> bool:
    """Whether it is a file, or a FIFO like the shell's `<(command)`; a device may have no end."""
    mode = path.stat().st_mode
    return stat.S_ISREG(mode) or stat.S_ISFIFO(mode)


def _stdin() -> TextIO:
    """Standard input, where a path may have any bytes except a newline."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape", newline="\n")
    return sys.stdin


def _lines(file: TextIO) -> Iterator[str]:
    return (line.rstrip("\r\n") for line in file if line.strip())
