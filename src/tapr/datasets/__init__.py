"""Image data sets: fetched once, verified, and kept in the cache folder; or your own images."""

from pathlib import Path

from tapr.datasets.base import Dataset, Entry, Watcher
from tapr.datasets.catalogue import DATASETS, PUBLISHED
from tapr.datasets.image_folder import load_folder
from tapr.errors import InputError

__all__ = [
    "DATASETS",
    "FOLDER",
    "PUBLISHED",
    "Dataset",
    "Entry",
    "Watcher",
    "class_names",
    "load",
]

FOLDER = "folder:"  # what a folder of your own images begins with


def load(name: str, split: str = "test", *, size: int | None = None) -> Dataset:
    """Load a split of a named data set, fetching it first when it is not here.

    `folder:PATH` loads your own images; only there may `size` ask for centre squares of that size.
    """
    if name.startswith(FOLDER):
        if split != "test":
            raise InputError(f"a folder has one split: leave it out, got {split!r}")
        if size is not None and size < 1:
            raise InputError(f"expected a size of at least 1 pixel, got {size}")
        return load_folder(Path(name.removeprefix(FOLDER)).expanduser(), size)
    if size is not None:
        raise InputError(f"{name} has its own image size: leave size out, got {size}")
    return DATASETS[name].load(split)


def class_names(name: str) -> tuple[str, ...]:
    """Return the names of a data set's classes, or () when the catalogue does not have it.

    >>> class_names("digits")[:3]
    ('0', '1', '2')
    """
    entry = DATASETS.get(name)
    return entry.classes if entry else ()
