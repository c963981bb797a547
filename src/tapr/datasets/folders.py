"""Folder-shaped data sets of the field, which stay where you have them; folders name the classes.

| the folder holds               | splits                                             |
|--------------------------------|----------------------------------------------------|
| a folder for each class        | `test`                                             |
| a folder for each domain       | the domains: `art_painting`, `Real World`, ...     |
| `val` beside `train`           | `test` is `val`                                    |
| `CORRUPTION/SEVERITY` (-C)     | `fog-5`, ...                                       |

No list of classes is kept here: a model finds its outputs by the folders' names.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tapr.datasets.base import Dataset, Linked, Watcher
from tapr.datasets.image_folder import is_image, load_folder
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError
from tapr.registry import suggest

TEST = "test"
VALIDATION = ("test", "val", "validation")  # what `test` may be called on the disk


@dataclass(frozen=True)
class FolderSet(Linked):
    """A data set of folders, one for each class, perhaps within one for each domain."""

    name: str
    about: str
    home: str  # where it is published
    classes: tuple[str, ...] = ()  # what the folders' names are says the disk
    only: bool = False  # is a model of more classes restricted to those of the data, as is usual
    size: str = "yours"

    splits: ClassVar[tuple[str, ...]] = ("test", "DOMAIN")

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Remember the folder; the images are looked at when they are used."""
        origin = origin or self.where()
        if origin is None:
            raise DataError(
                f"{self.name} is not downloaded for you: get it from {self.home}, then"
                f" `tapr data get {self.name} --from FOLDER`"
            )
        problems = self._problems(origin)
        if problems:
            raise DataError(problems[0])
        self.remember(origin)
        watch.note(f"{self.name} is in {origin}: {', '.join(list(self._splits(origin))[:8])}")

    def verify(self, watch: Watcher) -> list[str]:
        """Check that the folders are there; the images are looked at when they are used."""
        folder = self.where()
        return self._problems(folder) if folder else [f"{self.name} is not here"]

    def load(self, split: str, fit: Preprocessing | None = None) -> Dataset:
        """Load a split, its images resized and cropped as `fit` says."""
        folder = self.where()
        if folder is None:
            raise DataError(
                f"{self.name} is not here; `tapr data get {self.name} --from FOLDER` tells tapr"
                f" where ({self.home}); `folder:PATH` is for photographs of your own"
            )
        found = self._folder(folder, split)
        return load_folder(found, fit, name=f"{self.name}:{split}", probing=fit is None)

    def _problems(self, folder: Path) -> list[str]:
        if any(True for _ in self._splits(folder)):
            return []
        return [f"expected folders of images, one for each class, in {folder}, found none"]

    def _splits(self, folder: Path) -> Iterator[str]:
        """The splits in a folder: itself, or the folders that hold classes."""
        if _holds_classes(folder):
            yield TEST
            return
        yield from (each.name for each in _folders(folder) if _holds_classes(each))

    def _folder(self, folder: Path, split: str) -> Path:
        known = list(self._splits(folder))
        if known == [TEST] and split == TEST:
            return folder
        wanted = VALIDATION if split == TEST else (split,)
        for name in known:
            if _plain(name) in map(_plain, wanted):
                return folder / name
        raise DataError(
            f"{self.name} in {folder} has no split {split!r}; {suggest(split, known)}"
            + ("" if known else ": it has none")
        )


@dataclass(frozen=True)
class CorruptedFolders(FolderSet):
    """ImageNet-C as published: CORRUPTION/SEVERITY/CLASS/IMAGE, photographs of 224 pixels."""

    clean: str = ""  # the data set whose images were corrupted

    splits: ClassVar[tuple[str, ...]] = ("CORRUPTION-SEVERITY",)

    def load(self, split: str, fit: Preprocessing | None = None) -> Dataset:
        """Load one corruption at one severity; the images are cropped already."""
        return super().load(split, None if fit is None else fit._replace(crop=1.0))

    def has(self, corruptions: Sequence[str]) -> bool:
        """Whether the published folders of all these corruptions are on this machine."""
        folder = self.where()
        return folder is not None and all((folder / name).is_dir() for name in corruptions)

    def _splits(self, folder: Path) -> Iterator[str]:
        for corruption in _folders(folder):
            for severity in _folders(corruption):
                if severity.name in "12345" and _holds_classes(severity):
                    yield f"{corruption.name}-{severity.name}"

    def _folder(self, folder: Path, split: str) -> Path:
        corruption, _, severity = split.rpartition("-")
        found = folder / corruption / severity
        if not corruption or not _holds_classes(found):
            known = list(self._splits(folder))
            raise DataError(f"{self.name} in {folder} has no {split!r}; {suggest(split, known)}")
        return found


def _folders(path: Path) -> list[Path]:
    try:
        return sorted(each for each in path.iterdir() if each.is_dir())
    except OSError:
        return []


def _holds_classes(path: Path) -> bool:
    """Is there a folder of images in it? One is looked at: the first that is not empty."""
    for folder in _folders(path):
        for file in folder.iterdir():
            return is_image(file)
    return False


def _plain(name: str) -> str:
    return name.replace("_", "").replace(" ", "").replace("-", "").casefold()
