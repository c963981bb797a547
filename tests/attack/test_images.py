"""Thousands of damaged image files: each is read as pixels, or refused by a sentence.

`TAPR_ATTACK=N`: 230 N files are tried, by three readings each.
"""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tapr import datasets
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError, TaprError

FILES = 230 * int(os.environ.get("TAPR_ATTACK", "1"))
AREA = "fuzzed images"
SIDE = 16
KINDS: dict[
    str, list[tuple[str, str, dict[str, Any]]]
] = {  # suffix -> the images that are damaged: format, mode, options of the writer
    ".png": [("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")],
    ".jpg": [
        ("JPEG", "L", {}),
        ("JPEG", "RGB", {"progressive": True}),
        ("JPEG", "RGB", {"exif": True}),
        ("JPEG", "CMYK", {}),
    ],
    ".bmp": [("BMP", mode, {}) for mode in ("1", "L", "P", "RGB")],
    ".gif": [("GIF", "P", {}), ("GIF", "L", {}), ("GIF", "P", {"save_all": True})],
    ".tif": [
        *[("TIFF", mode, {}) for mode in ("1", "L", "P", "RGBA", "CMYK", "I;16", "I", "F")],
        ("TIFF", "RGB", {"compression": "tiff_lzw"}),
        ("TIFF", "RGB", {"compression": "tiff_adobe_deflate"}),
        ("TIFF", "RGB", {"exif": True}),
    ],
    ".webp": [("WEBP", "RGB", {}), ("WEBP", "RGBA", {"lossless": True})],
}
Bytes = NDArray[np.uint8]


def seeds(suffix: str) -> list[bytes]:
    """Whole files of a kind."""
    random = np.random.default_rng(0)
    found = []
    for kind, mode, asked in KINDS[suffix]:
        options = dict(asked)
        picture = Image.fromarray(random.integers(0, 256, (12, 20, 3), np.uint8))
        grey = mode in ("I;16", "I", "F")
        image = picture.convert("L").convert(mode) if grey else picture.convert(mode)
        if options.pop("exif", False):
            exif = Image.Exif()
            exif[0x0112] = 6
            options["exif"] = exif
        if options.get("save_all"):
            options["append_images"] = [image.rotate(180)]
        file = io.BytesIO()
        image.save(file, kind, **options)
        found.append(file.getvalue())
    return found


def flipped(data: Bytes, random: np.random.Generator) -> Bytes:
    places = random.integers(0, len(data), random.integers(1, 9))
    data[places] = random.integers(0, 256, len(places))
    return data


def flipped_in_the_header(data: Bytes, random: np.random.Generator) -> Bytes:
    flipped(data[:64], random)
    return data


def extreme_words(data: Bytes, random: np.random.Generator) -> Bytes:
    """Sizes, counts and offsets at the edges of their range."""
    for _ in range(random.integers(1, 4)):
        place = random.integers(0, len(data) - 4)
        words = ([0] * 4, [255] * 4, [0x7F, 255, 255, 255], [0, 0, 0, 1], [1, 0, 0, 0])
        data[place : place + 4] = words[random.integers(len(words))]
    return data


def cut(data: Bytes, random: np.random.Generator) -> Bytes:
    return data[: random.integers(0, len(data))]


def doubled(data: Bytes, random: np.random.Generator) -> Bytes:
    first, last = np.sort(random.integers(0, len(data), 2))
    return np.concatenate([data[:last], data[first:last], data[last:]])


def removed(data: Bytes, random: np.random.Generator) -> Bytes:
    first = random.integers(0, len(data))
    return np.delete(data, slice(first, first + random.integers(1, 40)))


DAMAGE: list[Callable[[Bytes, np.random.Generator], Bytes]] = [
    *(flipped, flipped_in_the_header, extreme_words, cut, doubled, removed)
]


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.filterwarnings("ignore")  # Pillow warns of much that it reads nevertheless
def test_a_damaged_file_is_pixels_or_a_sentence(suffix: str, tmp_path: Path, tally: Any) -> None:
    random = np.random.default_rng([7, *suffix.encode()])
    whole, path = seeds(suffix), tmp_path / f"damaged{suffix}"
    model_input = Preprocessing((3, SIDE, SIDE), crop=0.875)
    for number in range(FILES // len(KINDS) + 1):
        damage = DAMAGE[number % len(DAMAGE)]
        data = damage(np.frombuffer(whole[number % len(whole)], np.uint8).copy(), random)
        path.write_bytes(data.tobytes())
        for read, shape in (
            (lambda: model_input.read(path), (SIDE, SIDE, 3)),
            (lambda: loaded(tmp_path, SIDE), (1, SIDE, SIDE, 3)),
            (lambda: loaded(tmp_path, None), None),
        ):
            what = f"{suffix}, file {number}"
            said = tally.attempt(AREA, what, lambda r=read, s=shape: wrong(r, s))
            assert "expected an image of" not in (said or ""), "it was first of another size"
    assert tally.results, "no damaged file could be read: the damage proves little"
    assert tally.sentences, "no damaged file was refused: the damage proves little"


def wrong(read: Callable[[], Any], shape: tuple[int, ...] | None) -> str | None:
    """What is wrong with what was read; only a `DataError` says that nothing was."""
    try:
        found = read()
    except DataError:
        raise
    except TaprError as error:
        return f"{error!r} instead of a DataError"
    right = found.dtype == np.dtype(np.uint8) and shape in (None, found.shape)
    return None if right else f"{found.dtype} {found.shape}"


def loaded(folder: Path, size: int | None) -> NDArray[np.uint8]:
    """What `folder:PATH` makes of a folder, every image decoded."""
    data = datasets.load(f"folder:{folder}", size=size)
    return data.images[:]
