"""MNIST: the official idx files, padded to the size of the other digits."""

import math
from pathlib import Path

import numpy as np

from tapr.datasets.base import Labels, Pixels
from tapr.datasets.cifar import Arrays
from tapr.datasets.members import read_packed
from tapr.errors import DataError

FILES = {  # split -> images, labels
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
IMAGES, LABELS = 0x0803, 0x0801  # how the files begin: bytes, of three and of one dimension
BORDER = 2  # black pixels on each side, from 28 x 28 to 32 x 32


def read_mnist(path: Path) -> Arrays:
    """Decode MNIST from a tar, or a folder (there gzipped or not), with its four official files."""
    members = read_packed(path, [name for names in FILES.values() for name in names])
    return {
        split: (
            _images(_idx(members[images], IMAGES, f"{path}: {images}")),
            _labels(_idx(members[labels], LABELS, f"{path}: {labels}")),
        )
        for split, (images, labels) in FILES.items()
    }


def _idx(data: bytes, kind: int, what: str) -> Pixels:
    """An array of bytes after a header of big-endian words: the kind, then the sizes."""
    length = 4 * (1 + (kind & 0xFF))
    if data[:4] != kind.to_bytes(4, "big") or len(data) < length:
        raise DataError(f"{what}: expected an idx file that begins with {kind:08x}")
    shape = np.frombuffer(data[4:length], ">u4").tolist()
    values = np.frombuffer(data, np.uint8, offset=length)
    if len(values) != math.prod(shape):
        raise DataError(f"{what}: expected values of shape {shape}, got {len(values)}")
    return values.reshape(shape)


def _images(grey: Pixels) -> Pixels:
    padded = np.pad(grey, ((0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    return np.repeat(padded[..., None], 3, axis=3)


def _labels(values: Pixels) -> Labels:
    return values.astype(np.int64)
