"""Your own images: a folder with one subfolder per class, or a flat one without labels."""

import logging
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from tapr.datasets.base import Dataset, Pixels
from tapr.datasets.images import SUFFIXES, decode, probe
from tapr.datasets.lazy import LazyImages, in_threads
from tapr.datasets.members import read_regular
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError

_log = logging.getLogger("tapr.datasets")


def load_folder(
    path: Path, fit: Preprocessing | None = None, *, name: str = "", probing: bool = True
) -> Dataset:
    """Load the images below `path`, decoded when they are used.

    With `fit`, they are resized and cropped as it says; without it all images must have one size.
    Unreadable files are logged, listed in `skipped`, left out; without `probing`, which takes a
    look at every file, that is left to whoever chooses among the images (`LazyImages.unreadable`).
    """
    if not path.is_dir():
        raise DataError(f"expected a folder of images, but {path} is not a folder")
    by_class = {
        folder.name: found
        for folder in _sorted(path.iterdir())
        if folder.is_dir() and (found := _images_below(folder))
    }
    flat = [] if by_class else [file for file in _sorted(path.iterdir()) if is_image(file)]
    files = [file for found in by_class.values() for file in found] + flat
    if not files:
        raise DataError(
            f"expected images ({', '.join(SUFFIXES)}) in {path} or in its subfolders, found none"
        )
    readable, sizes, skipped = _probe_all(files, path) if probing else _listed(files, path)
    channels, height, width = fit.size if fit else (3, *_common_size(sizes, path))
    places = {name: place for place, name in enumerate(by_class)}
    labels = np.array(
        [places[name.split("/")[0]] for name in readable] if by_class else [], np.int64
    )
    images = LazyImages(
        readable,
        lambda name: read_regular(path / name),
        partial(_fitted, fit=fit),
        (height, width, channels),
    )
    return Dataset(
        name or f"folder:{path}",
        cast(Pixels, images),
        labels if by_class else None,
        tuple(by_class),
        tuple(skipped),
        checked=probing,
    )


Probed = tuple[list[str], dict[tuple[int, int], str], list[str]]


def _listed(files: list[Path], path: Path) -> Probed:
    return [file.relative_to(path).as_posix() for file in files], {}, []


def _probe_all(files: list[Path], path: Path) -> Probed:
    """Return the readable files, an example of each image size, and why others were skipped."""
    readable: list[str] = []
    sizes: dict[tuple[int, int], str] = {}
    skipped: list[str] = []
    for file, found in zip(files, in_threads(_probe_file, files), strict=True):
        name = file.relative_to(path).as_posix()
        if isinstance(found, str):
            _log.warning("skipped %s: %s", file, found)
            skipped.append(f"{name}: {found}")
        else:
            readable.append(name)
            sizes.setdefault(found, name)
    if not readable:
        raise DataError(f"none of the {len(files)} images in {path} can be read: {skipped[0]}")
    return readable, sizes, skipped


def _probe_file(file: Path) -> tuple[int, int] | str:
    try:
        return probe(read_regular(file))
    except DataError as error:
        return str(error)


def _common_size(sizes: dict[tuple[int, int], str], path: Path) -> tuple[int, int]:
    if len(sizes) > 1:
        (first, one), (second, other) = list(sizes.items())[:2]
        raise DataError(
            f"expected images of one size in {path}, but {one} has {first[0]} x {first[1]} and "
            f"{other} has {second[0]} x {second[1]} pixels; give a size, for example 224"
        )
    return next(iter(sizes))


def _fitted(data: bytes, fit: Preprocessing | None) -> Pixels:
    image = decode(data)
    return np.asarray(image) if fit is None else fit.prepare(image)


def _images_below(folder: Path) -> list[Path]:
    return [file for file in _sorted(folder.rglob("*")) if is_image(file)]


def is_image(file: Path) -> bool:
    """Tell an image by its name; whether it is a regular file is checked when it is read."""
    return file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and not file.is_dir()


def _sorted(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: path.as_posix())
