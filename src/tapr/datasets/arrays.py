"""Data sets that are fetched once, decoded, and kept as verified arrays in the cache."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from tapr import cache
from tapr.datasets.base import Dataset, Entry, Logged, Watcher
from tapr.datasets.cifar import Arrays
from tapr.datasets.download import Source, fetch_first
from tapr.errors import DataError

PARTS = ("images", "labels")


@dataclass(frozen=True)
class ArraySet(Entry):
    """A data set kept as arrays: its sources, how to decode one, and the hashes to expect."""

    name: str
    about: str
    size: str
    classes: tuple[str, ...]
    sources: tuple[Source, ...]
    decode: Callable[[Path], Arrays]
    hashes: Mapping[tuple[str, str], str]  # (split, part) -> sha256 of the decoded array
    splits: ClassVar[tuple[str, ...]] = ("train", "test")

    def where(self) -> Path | None:
        """Return its folder in the cache, or None while a file is missing there."""
        complete = all(self._file(split, part).exists() for split, part in self.hashes)
        return cache.folder() / self.name if complete else None

    def verify(self, watch: Watcher) -> list[str]:
        """Read every array and compare its hash; one sentence for each that is wrong."""
        problems = []
        for done, (split, part) in enumerate(self.hashes):
            try:
                self._read(split, part)
            except DataError as error:
                problems.append(str(error))
            watch.progress(done + 1, len(self.hashes))
        return problems

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Fetch, decode, check and store the arrays, unless the cache already holds them all."""
        if not self.verify(Logged()):
            watch.note(f"{self.name} is in {cache.folder() / self.name}, verified")
            return
        with cache.locked(self.name) as folder:
            problems = self.verify(Logged())
            if not problems:
                watch.note(f"{self.name} was fetched by another process meanwhile")
                return
            for problem in problems if self.where() else ():
                watch.note(problem)
            try:
                self._fill(folder, watch, origin)
            except OSError as error:
                shutil.rmtree(folder / "download", ignore_errors=True)
                raise cache.cannot_write(folder, error) from error

    def load(self, split: str) -> Dataset:
        """Load a split from the cache and check it; fetch it when it is missing or damaged."""
        self.check_split(split)
        try:
            return self._load(split)
        except DataError:
            self.get(Logged())
            return self._load(split)

    def _load(self, split: str) -> Dataset:
        images, labels = (self._read(split, part) for part in PARTS)
        return Dataset(self.name, images, labels, self.classes)

    def _fill(self, folder: Path, watch: Watcher, origin: Path | None) -> None:
        for left_over in folder.glob(".*.part"):  # of a killed process: we hold the lock
            left_over.unlink()
        downloads = folder / "download"
        archive = origin or fetch_first(self.name, self.sources, downloads, watch)
        watch.note(f"decoding {archive}")
        try:
            self._store(self._decoded(archive))
        finally:
            shutil.rmtree(downloads, ignore_errors=True)
        watch.note(f"{self.name} is in {folder}, verified")

    def _decoded(self, archive: Path) -> Arrays:
        arrays = self.decode(archive)
        for (split, part), expected in self.hashes.items():
            came = cache.sha256(arrays[split][PARTS.index(part)])
            if came != expected:
                raise DataError(
                    f"{archive} is not {self.name}: expected {split} {part} "
                    f"with sha256 {expected}, got {came}"
                )
        return arrays

    def _store(self, arrays: Arrays) -> None:
        for split, part in self.hashes:
            with cache.writing(self._file(split, part)) as path, path.open("wb") as file:
                np.save(file, arrays[split][PARTS.index(part)], allow_pickle=False)

    def _file(self, split: str, part: str) -> Path:
        return cache.folder() / self.name / f"{split}-{part}.npy"

    def _read(self, split: str, part: str) -> np.ndarray:
        path = self._file(split, part)
        try:
            array: np.ndarray = np.load(path, allow_pickle=False)
        except FileNotFoundError as error:
            raise DataError(f"{path} is missing") from error
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        if cache.sha256(array) != self.hashes[split, part]:
            raise DataError(f"{path} is damaged: its hash is not that of {self.name}")
        return array
