"""Turn the bodies of requests into tensors: image files, .npy arrays, or JSON with base64.

| content type               | body                                              |
|----------------------------|---------------------------------------------------|
| `multipart/form-data`      | image files in the field `files`, one or many     |
| `image/*`                  | one image file                                    |
| `application/x-npy`        | a .npy file: uint8 [B, H, W, C], or float32 [B, C, H, W] in [0, 1] |
| `application/octet-stream` | the same                                          |
| `application/json`         | `{"images": ["<base64 of an image file>", ...]}`  |

Files are resized and cropped as the model's preprocessing says; an array has the model's own size.
We trust no size that a body states: we compare it with the bytes that arrived before we allocate
memory for it.
"""

import base64
import binascii
import io
import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tapr.datasets.images import FORMATS, decode
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError, InputError
from tapr.streams.stream import as_tensor

_HEADER = 1000  # the most bytes of a .npy header
_FIELDS = (
    re.compile(r"'descr': *'([^']{1,20})'"),
    re.compile(r"'fortran_order': *(True|False)"),
    re.compile(r"'shape': *\(([\d, ]{0,60})\)"),
)
_KINDS: dict[str, np.dtype[Any]] = {"|u1": np.dtype(np.uint8), "<f4": np.dtype(np.float32)}


class Limits(NamedTuple):
    """The most that one request may hold."""

    images: int
    pixels: int  # of one image


def from_files(files: Sequence[bytes], limits: Limits, done: Preprocessing) -> Tensor:
    """Images [B, C, H, W] in [0, 1] from encoded files."""
    _check_count(len(files), limits)
    pixels = [done.prepare(_decoded(data, place, limits)) for place, data in enumerate(files)]
    return as_tensor(np.stack(pixels))


def from_json(body: bytes, limits: Limits, done: Preprocessing) -> Tensor:
    """Images from a body `{"images": [base64, ...]}`."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"expected JSON, got something else: {error}") from None
    texts = content.get("images") if isinstance(content, dict) else None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError('expected {"images": [...]} with images as base64 texts')
    _check_count(len(texts), limits)
    try:
        files = [base64.b64decode(text, validate=True) for text in texts]
    except (binascii.Error, ValueError) as error:
        raise InputError(f"expected images as base64 texts, got one that is not: {error}") from None
    return from_files(files, limits, done)


def from_array(body: bytes, limits: Limits, done: Preprocessing) -> Tensor:
    """Images from a .npy file: uint8 [B, H, W, C], or float32 [B, C, H, W] in [0, 1]."""
    written, shape, data = _npy(body)
    channels, height, width = done.size
    if written not in _KINDS:
        raise InputError(f"expected an array of uint8 or float32 in C order, got {written!r}")
    kind = _KINDS[written]
    sides = (height, width, channels) if kind == np.uint8 else (channels, height, width)
    if len(shape) == 3:
        shape = (1, *shape)
    if len(shape) != 4 or shape[1:] != sides:
        expected = ", ".join(map(str, sides))
        raise InputError(f"expected {kind} of shape [B, {expected}], got {list(shape)}")
    _check_count(shape[0], limits)
    if len(data) != math.prod(shape) * kind.itemsize:
        raise InputError(f"expected {math.prod(shape) * kind.itemsize} bytes, got {len(data)}")
    values = np.frombuffer(data, kind).reshape(shape).copy()  # writable, as torch wants it
    if kind == np.uint8:
        return as_tensor(values)
    images = torch.from_numpy(values)
    low, high = (value.item() for value in images.aminmax())
    if not (low >= 0 and high <= 1):
        raise InputError(f"expected values in [0, 1], got {low:g} to {high:g}")
    return images


def _npy(body: bytes) -> tuple[str, tuple[int, ...], bytes]:
    """Kind, shape and data of a .npy file.

    We do not use numpy's own reader, which evaluates the header as Python: under load, called by
    several threads, it refused a valid header in one of 10,000 requests (Python 3.11, numpy 2.4).
    """
    bytes_of_length = {b"\x01\x00": 2, b"\x02\x00": 4}.get(body[6:8], 0)
    start = 8 + bytes_of_length
    end = start + int.from_bytes(body[8:start], "little")
    header = body[start:end].decode("latin-1") if end - start <= _HEADER else ""
    found = [pattern.search(header) for pattern in _FIELDS]
    if body[:6] != b"\x93NUMPY" or not bytes_of_length or None in found:
        raise InputError(
            f"expected a .npy file, as numpy.save writes it, got {len(body)} bytes of another kind"
        )
    kind, by_column, sides = (each[1] for each in found if each is not None)
    shape = tuple(int(side) for side in sides.replace(",", " ").split())
    return (f"{kind}, by column" if by_column == "True" else kind), shape, body[end:]


def _check_count(count: int, limits: Limits) -> None:
    if not 1 <= count <= limits.images:
        raise InputError(f"expected 1 to {limits.images} images, got {count}")


def _decoded(data: bytes, place: int, limits: Limits) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
    except Exception:
        raise InputError(f"image {place} is not an image of a known format") from None
    if width * height > limits.pixels:
        raise InputError(
            f"expected images of at most {limits.pixels} pixels, image {place} has {width} x"
            f" {height}"
        )
    try:
        return decode(data)
    except DataError as error:
        raise InputError(f"image {place} cannot be read: {error}") from None
