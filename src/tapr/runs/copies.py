"""A second place for finished records: any URL that fsspec reaches, such as `s3://bucket/runs`."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TypeVar

import fsspec

from tapr import files
from tapr.errors import DataError, InputError

T = TypeVar("T")


class Copies:
    """Finished files at a URL; each appears there complete or not at all."""

    def __init__(self, url: str) -> None:
        try:
            self._remote, self._folder = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:  # a package is missing; no such protocol
            raise InputError(
                f"expected --copy-to as a URL for fsspec, got {url!r}: {error}"
            ) from error
        self._url = url
        self._there = self._tried(self._names)

    def fetch(self, paths: Sequence[Path]) -> None:
        """Download those of these files that exist at the URL."""
        for path in paths:
            if path.name in self._there:
                content = self._tried(partial(self._remote.cat_file, self._place(path.name)))
                with files.atomic(path) as part:
                    part.write_bytes(content)

    def send(self, path: Path) -> None:
        """Copy a finished file to the URL, if it is not there yet."""
        if path.name in self._there:
            return
        part, content = self._place(f".{path.name}.part"), path.read_bytes()
        self._tried(partial(self._remote.pipe_file, part, content))
        self._tried(partial(self._remote.mv, part, self._place(path.name)))
        self._there.add(path.name)

    def _names(self) -> set[str]:
        self._remote.makedirs(self._folder, exist_ok=True)
        return {PurePosixPath(found).name for found in self._remote.ls(self._folder, detail=False)}

    def _place(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def _tried(self, work: Callable[[], T]) -> T:
        """Run an operation at the URL; its errors become a DataError, and local records stay."""
        try:
            return work()
        except Exception as error:  # every kind of storage raises its own
            raise DataError(
                f"cannot read or write {self._url}: {type(error).__name__}: {error}; the records"
                " are in --out, and the same command copies what is missing"
            ) from error
