"""Image data sets: fetched once, verified, and kept in the cache folder; or your own images."""

from pathlib import Path

from tapr.datasets import imagenet
from tapr.datasets.base import Dataset, Entry, Watcher
from tapr.datasets.catalogue import DATASETS, PUBLISHED
from tapr.datasets.folders import FolderSet
from tapr.datasets.foreign import as_dataset
from tapr.datasets.image_folder import load_folder
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import InputError

__all__ = [
    "DATASETS",
    "FOLDER",
    "PUBLISHED",
    "Dataset",
    "Entry",
    "Watcher",
    "as_dataset",
    "class_names",
    "is_only",
    "is_sized",
    "load",
]

FOLDER = "folder:"  # what a folder of your own images begins with


def load(name: str, split: str = "test", *, size: int | Preprocessing | None = None) -> Dataset:
    """Load a split of a named data set, fetching it first when it is not here.

    `folder:PATH` loads your own images. There, and for sets of folders such as `imagenet-r`, `size`
    may ask for centre squares of so many pixels, or for all that a `Preprocessing` says.
    """
    if name.startswith(FOLDER):
        if split != "test":
            raise InputError(f"a folder has one split: leave it out, got {split!r}")
        return load_folder(Path(name.removeprefix(FOLDER)).expanduser(), _fit(size))
    entry = DATASETS[name]
    if isinstance(entry, FolderSet):
        return entry.load(split, _fit(size))
    if size is not None:
        raise InputError(f"{name} has its own image size: leave size out, got {size}")
    return entry.load(split)


def is_sized(name: str) -> bool:
    """Are the images of this data set of any size, to be resized and cropped for a model?"""
    return name.startswith(FOLDER) or isinstance(DATASETS.get(name), FolderSet)


def is_only(name: str) -> bool:
    """Is a model of more classes restricted to those of this data set, as is usual for it?"""
    entry = DATASETS.get(name)
    return isinstance(entry, FolderSet) and entry.only


def class_names(name: str) -> tuple[str, ...]:
    """Return the names of a data set's classes, or () when the catalogue does not have it.

    >>> class_names("digits")[:3]
    ('0', '1', '2')
    """
    if name == imagenet.NAME:
        return imagenet.names()
    entry = DATASETS.get(name)
    return entry.classes if entry else ()


def _fit(size: int | Preprocessing | None) -> Preprocessing | None:
    if not isinstance(size, int):
        return size
    if size < 1:
        raise InputError(f"expected a size of at least 1 pixel, got {size}")
    return Preprocessing((3, size, size))
