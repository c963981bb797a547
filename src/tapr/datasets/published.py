"""CIFAR-10-C and CIFAR-100-C as published: a .npy per corruption, severity after severity."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from tapr import cache
from tapr.datasets.base import Dataset, Labels, Linked, Pixels, Watcher
from tapr.datasets.download import Source, fetch_first
from tapr.datasets.members import open_member, opened_tar
from tapr.errors import DataError
from tapr.registry import suggest

SEVERITIES = 5


@dataclass(frozen=True)
class PublishedSet(Linked):
    """A folder of published .npy files, memory-mapped; its splits are called like "fog-5"."""

    name: str
    about: str
    size: str
    clean: str  # the data set whose test images were corrupted
    classes: tuple[str, ...]
    source: Source
    label_hash: str  # of the clean test set's labels

    splits = ("CORRUPTION-SEVERITY",)

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Remember the folder `origin`, or download and unpack the published archive."""
        if origin is None and self.where() and not self.verify(watch):
            watch.note(f"{self.name} is in {self.where()}, verified")
            return
        folder = self._find(origin) if origin else self._download(watch)
        problems = self._problems(folder, watch)
        if problems:
            raise DataError(problems[0])
        self.remember(folder)
        watch.note(f"{self.name} is in {folder}, verified: {len(self._names(folder))} corruptions")

    def verify(self, watch: Watcher) -> list[str]:
        """Check shapes, types and labels; the images' bytes are not hashed."""
        folder = self.where()
        return self._problems(folder, watch) if folder else [f"{self.name} is not here"]

    def load(self, split: str) -> Dataset:
        """Memory-map a split such as "fog-5": one corruption at one severity."""
        folder = self.where()
        if folder is None:
            raise DataError(
                f"the published {self.name} is not here; `tapr data get {self.name} --from PATH` "
                f"takes a folder you have, without --from it is downloaded, and `tapr.streams` "
                f"makes the same corruptions out of {self.clean}"
            )
        corruption, _, severity = split.rpartition("-")
        if severity not in map(str, range(1, SEVERITIES + 1)):
            raise DataError(
                f"expected a split like 'fog-5', with a severity from 1 to 5, got {split!r}"
            )
        if corruption not in self._names(folder):
            hint = suggest(corruption, self._names(folder))
            raise DataError(f"{folder} has no corruption {corruption!r}; {hint}")
        labels = self._labels(folder)
        count = len(labels) // SEVERITIES
        images = self._images(folder, corruption, len(labels))
        part = slice((int(severity) - 1) * count, int(severity) * count)
        return Dataset(f"{self.name}:{split}", images[part], labels[part], self.classes)

    def has(self, corruptions: Sequence[str]) -> bool:
        """Whether the published files of all these corruptions are on this machine."""
        folder = self.where()
        return folder is not None and set(corruptions) <= set(self._names(folder))

    def _names(self, folder: Path) -> list[str]:
        return sorted(file.stem for file in folder.glob("*.npy") if file.stem != "labels")

    def _problems(self, folder: Path, watch: Watcher) -> list[str]:
        problems = []
        try:
            count = len(self._labels(folder))
        except DataError as error:
            return [str(error)]
        names = self._names(folder)
        for done, name in enumerate(names):
            try:
                self._images(folder, name, count)
            except DataError as error:
                problems.append(str(error))
            watch.progress(done + 1, len(names))
        return problems or ([] if names else [f"{folder} has labels.npy but no corruption"])

    def _labels(self, folder: Path) -> Labels:
        path = folder / "labels.npy"
        labels = _map(path)
        if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) % SEVERITIES:
            raise DataError(
                f"{path}: expected whole numbers, one per image and severity, got {_about(labels)}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise DataError(
                f"{path}: expected labels from 0 to {len(self.classes) - 1}, "
                f"got {labels.min()} to {labels.max()}"
            )
        blocks = np.array(labels, np.int64).reshape(SEVERITIES, -1)
        if (blocks != blocks[0]).any():
            raise DataError(f"{path}: expected the same labels at each of the 5 severities")
        if len(blocks[0]) == 10_000 and cache.sha256(blocks[0]) != self.label_hash:
            raise DataError(f"{path}: the labels are not those of the {self.clean} test set")
        return blocks.reshape(-1)

    def _images(self, folder: Path, corruption: str, count: int) -> Pixels:
        path = folder / f"{corruption}.npy"
        images = _map(path)
        if images.dtype != np.uint8 or images.shape != (count, 32, 32, 3):
            raise DataError(
                f"{path}: expected uint8 of shape {[count, 32, 32, 3]}, got {_about(images)}"
            )
        return images

    def _find(self, origin: Path) -> Path:
        """The folder that holds labels.npy: `origin` itself or one just below it."""
        for folder in (origin, *sorted(path for path in origin.glob("*") if path.is_dir())):
            if (folder / "labels.npy").is_file():
                return folder
        raise DataError(f"expected {origin} to be a folder with labels.npy and <corruption>.npy")

    def _download(self, watch: Watcher) -> Path:
        with cache.locked(self.name) as folder:
            downloads = folder / "download"
            try:
                archive = fetch_first(self.name, [self.source], downloads, watch)
                watch.note(f"unpacking {archive}")
                _unpack(archive, folder)
                shutil.rmtree(downloads, ignore_errors=True)
            except OSError as error:
                shutil.rmtree(downloads, ignore_errors=True)
                raise cache.cannot_write(folder, error) from error
            return folder


def _unpack(archive: Path, folder: Path) -> None:
    with opened_tar(archive) as members:
        for member in members:
            name = PurePosixPath(member.name).name
            if re.fullmatch(r"\w+\.npy", name) and not member.isdir():
                with cache.writing(folder / name) as part, part.open("wb") as out:
                    shutil.copyfileobj(open_member(members, member), out, 1 << 20)


def _map(path: Path) -> np.ndarray:
    if not path.is_file():
        raise DataError(f"{path} is {'not a regular file' if path.exists() else 'missing'}")
    try:
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a whole .npy file: {error}") from error
    return array


def _about(array: np.ndarray) -> str:
    return f"{array.dtype} of shape {list(array.shape)}"
