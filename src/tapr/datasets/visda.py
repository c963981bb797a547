"""VisDA-C in its official layout: folders, or the official tars read in place."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from PIL import Image

from tapr.datasets.base import Dataset, Linked, Pixels, Watcher
from tapr.datasets.classes import VISDA
from tapr.datasets.images import decode, probe
from tapr.datasets.lazy import LazyImages, in_threads
from tapr.datasets.members import opened_tar, read_regular
from tapr.errors import DataError

LIST = "image_list.txt"
RESIZED, CROPPED = 256, 224


class Listed(NamedTuple):
    """The content of an image list: file names, and their labels where it has any."""

    names: list[str]
    labels: list[int] | None


class Files(ABC):
    """The files of one split, by their name in the image list."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Read a file; OSError or DataError when that fails."""

    @abstractmethod
    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""


class FolderFiles(Files):
    """The files of an unpacked split."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str) -> bytes:
        """Read a file."""
        return read_regular(self.folder / name)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.folder / name).is_file()


class TarFiles(Files):
    """The files of a split in its tar: the index is read once, then only the bytes asked for."""

    def __init__(self, path: Path) -> None:
        with opened_tar(path, compression="") as archive:
            members = [member for member in archive if member.isreg() and not member.issparse()]
        self._path = path
        self._places = {
            _inside(member.name, path.stem): (member.offset_data, member.size) for member in members
        }

    def read(self, name: str) -> bytes:
        """Read a file; several threads may do so at a time."""
        if name not in self._places:
            raise FileNotFoundError(f"{self._path} has no file {name}")
        offset, size = self._places[name]
        with self._path.open("rb") as archive:
            archive.seek(offset)
            return archive.read(size)

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return name in self._places


class Visda(Linked):
    """VisDA-C where the user has it, decoded when used, with the released preprocessing."""

    name = "visda"
    about = "VisDA-C: rendered and real, 12 classes"
    size = "yours"
    classes = VISDA
    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    training: ClassVar[Mapping[str, Any]] = {
        "architecture": "resnet-50",
        "weights": "timm:resnet50",
        "epochs": 10,
        "batch_size": 64,
        "learning_rate": 0.002,
    }

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Decode every image below `origin` once; remember the folder and what was unreadable."""
        origin = origin or self.where()
        if origin is None:
            raise DataError(
                "visda is not downloaded for you: get train.tar, validation.tar or test.tar from "
                "http://ai.bu.edu/visda-2017, then `tapr data get visda --from FOLDER`"
            )
        present = [split for split in self.splits if _is_there(origin, split)]
        if not present:
            raise DataError(
                f"expected {origin} to hold train, validation or test, as a folder with {LIST} "
                "or as a .tar; it holds none of them"
            )
        unreadable = {split: _unreadable(origin, split, watch) for split in present}
        self.remember(origin, unreadable=unreadable)
        for split, found in unreadable.items():
            watch.note(f"visda {split} is in {origin}, {len(found)} unreadable images")

    def verify(self, watch: Watcher) -> list[str]:
        """Check the image lists against the files, and decode every image."""
        path = self.where()
        if path is None:
            return ["visda is not here"]
        problems = []
        for split in filter(lambda split: _is_there(path, split), self.splits):
            try:
                found = _unreadable(path, split, watch)
            except DataError as error:
                problems.append(str(error))
            else:
                problems += [f"{path}: {split}/{name} cannot be read" for name in found]
        return problems

    def load(self, split: str) -> Dataset:
        """Load a split; images found unreadable by `tapr data get` are skipped and listed."""
        self.check_split(split)
        path = self.where()
        if path is None:
            raise DataError(
                "visda is not here; `tapr data get visda --from FOLDER` tells tapr where it is"
            )
        files, listed = open_split(path, split)
        skipped = self.recall().get("unreadable", {}).get(split, [])
        keep = [place for place, name in enumerate(listed.names) if name not in set(skipped)]
        images = LazyImages(
            [listed.names[place] for place in keep], files.read, prepare, (CROPPED, CROPPED, 3)
        )
        labels = None if listed.labels is None else np.array(listed.labels, np.int64)[keep]
        return Dataset(f"visda:{split}", cast(Pixels, images), labels, self.classes, tuple(skipped))


def prepare(data: bytes) -> Pixels:
    """Decode a file and apply the released preprocessing: 256 x 256, then the centre 224 x 224."""
    resized = decode(data, upright=False).resize((RESIZED, RESIZED), Image.Resampling.BILINEAR)
    edge = (RESIZED - CROPPED) // 2
    return np.asarray(resized.crop((edge, edge, edge + CROPPED, edge + CROPPED)))


def open_split(path: Path, split: str) -> tuple[Files, Listed]:
    """Open a split: its files and its image list, checked against each other."""
    folder, tar = path / split, path / f"{split}.tar"
    if not _is_there(path, split):
        raise DataError(f"visda has no {split} here: expected {folder / LIST} or {tar}")
    files = FolderFiles(folder) if (folder / LIST).is_file() else TarFiles(tar)
    where = folder / LIST if isinstance(files, FolderFiles) else f"{tar}: {LIST}"
    try:
        listed = _parse(files.read(LIST).decode(), str(where))
    except (OSError, UnicodeDecodeError, DataError) as error:
        raise DataError(f"cannot read {where}: {error}") from error
    absent = [name for name in listed.names if not files.has(name)]
    if absent:
        raise DataError(
            f"{where} names {len(absent)} files that are not there, the first is {absent[0]}"
        )
    return files, listed


def _parse(text: str, where: str) -> Listed:
    rows = [line.rsplit(maxsplit=1) for line in text.splitlines() if line.strip()]
    if not rows:
        raise DataError(f"{where}: expected lines like 'aeroplane/a.jpg 0', it is empty")
    for number, row in enumerate(rows, 1):
        name = PurePosixPath(row[0])
        if name.is_absolute() or ".." in name.parts:
            raise DataError(f"{where}, line {number}: {row[0]!r} leads out of the folder")
    if all(len(row) == 1 for row in rows):
        return Listed([row[0] for row in rows], None)
    for number, row in enumerate(rows, 1):
        label = row[1] if len(row) == 2 else ""
        if not (label.isdecimal() and int(label) < len(VISDA)):
            raise DataError(
                f"{where}, line {number}: expected a file and a class from 0 to 11, "
                f"got {' '.join(row)!r}"
            )
    return Listed([row[0] for row in rows], [int(row[1]) for row in rows])


def _unreadable(path: Path, split: str, watch: Watcher) -> list[str]:
    files, listed = open_split(path, split)

    def check(name: str) -> str | None:
        try:
            probe(files.read(name))
        except (OSError, DataError):
            return name
        return None

    found = []
    for done, name in enumerate(in_threads(check, listed.names), 1):
        if name is not None:
            found.append(name)
        watch.progress(done, len(listed.names))
    if len(found) == len(listed.names):
        raise DataError(f"none of the {len(found)} images of {path / split} can be read")
    return found


def _is_there(path: Path, split: str) -> bool:
    return (path / split / LIST).is_file() or (path / f"{split}.tar").is_file()


def _inside(name: str, split: str) -> str:
    """A member's name as the image list spells it: validation/plant/a.jpg -> plant/a.jpg."""
    parts = [part for part in PurePosixPath(name).parts if part != "."]
    return "/".join(parts[1:] if parts and parts[0] == split else parts)
