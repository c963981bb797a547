"""Bodies of requests: what is read, and what is refused."""

import base64
import io
import json
import time

import numpy as np
import pytest
import torch
from PIL import Image

from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import InputError
from tapr.service.images import Limits, from_array, from_files, from_json

DONE = Preprocessing((3, 8, 6))
LIMITS = Limits(images=3, pixels=10_000)


def pixels(
    height: int = 8, width: int = 6, seed: int = 0
) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def encoded(array: object, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.asarray(array)).save(file, kind)
    return file.getvalue()


def saved(array: object) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def test_files_arrays_and_base64_are_the_same_image() -> None:
    expected = torch.from_numpy(pixels()).permute(2, 0, 1).float().div(255)[None]
    file = encoded(pixels())
    text = json.dumps({"images": [base64.b64encode(file).decode()]}).encode()
    assert torch.equal(from_files([file], LIMITS, DONE), expected)
    assert torch.equal(from_json(text, LIMITS, DONE), expected)
    assert torch.equal(from_array(saved(pixels()[None]), LIMITS, DONE), expected)
    assert torch.equal(from_array(saved(pixels()), LIMITS, DONE), expected)
    assert torch.equal(from_array(saved(expected.numpy()), LIMITS, DONE), expected)


def test_files_are_resized_as_the_model_wants_them() -> None:
    assert from_files([encoded(pixels(30, 40))], LIMITS, DONE).shape == (1, 3, 8, 6)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "expected a .npy file"),
        (b"\x93NUMPY\x01\x00", "expected a .npy file"),
        (b"\x93NUMPY\x09\x00" + bytes(100), "expected a .npy file"),
        (saved([{"a": object}]), "uint8 or float32"),
        (saved(np.zeros((1, 8, 6, 3), np.int64)), "uint8 or float32"),
        (saved(np.asfortranarray(np.zeros((2, 8, 6, 3), np.uint8))), "C order"),
        (saved(np.zeros((1, 9, 6, 3), np.uint8)), r"shape \[B, 8, 6, 3\]"),
        (saved(np.zeros((1, 8, 6, 3), np.float32)), r"shape \[B, 3, 8, 6\]"),
        (saved(np.zeros((0, 8, 6, 3), np.uint8)), "1 to 3 images, got 0"),
        (saved(np.zeros((4, 8, 6, 3), np.uint8)), "1 to 3 images, got 4"),
        (saved(np.zeros((2, 8, 6, 3), np.uint8))[:-1], "expected 288 bytes, got 287"),
        (saved(np.full((1, 3, 8, 6), 1.5, np.float32)), "in .0, 1., got 1.5"),
        (saved(np.full((1, 3, 8, 6), np.nan, np.float32)), "in .0, 1., got nan"),
        (saved(np.full((1, 3, 8, 6), -1, np.float32)), "in .0, 1., got -1"),
    ],
)
def test_arrays_that_are_refused(body: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_array(body, LIMITS, DONE)


def test_an_array_that_claims_to_be_huge_takes_no_memory() -> None:
    body = saved(np.zeros((1, 8, 6, 3), np.uint8)).replace(b"(1, 8, 6, 3), }", b"(2, 8, 6, 3), }")
    with pytest.raises(InputError, match="expected 288 bytes"):
        from_array(body, LIMITS, DONE)


def test_a_hostile_header_takes_no_time() -> None:
    for inside in ("'shape': (" + "1" * 900, "'descr': '" * 90, "'shape': " + " " * 900):
        header = ("{'descr': '|u1', 'fortran_order': False, " + inside).encode()
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        began = time.perf_counter()
        with pytest.raises(InputError, match=r"expected a \.npy file"):
            from_array(body, LIMITS, DONE)
        assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        (b"", "image 0 is not an image"),
        (b"GIF89a", "image 0 is not an image"),
        (encoded(pixels())[:80], "image 0 cannot be read"),
        (encoded(np.zeros((101, 100, 3), np.uint8)), "at most 10000 pixels"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "is not an image"),
    ],
)
def test_files_that_are_refused(file: bytes, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        from_files([file], LIMITS, DONE)


def test_too_many_files_are_refused() -> None:
    with pytest.raises(InputError, match="1 to 3 images, got 4"):
        from_files([encoded(pixels())] * 4, LIMITS, DONE)
    with pytest.raises(InputError, match="1 to 3 images, got 0"):
        from_files([], LIMITS, DONE)


@pytest.mark.parametrize(
    "body",
    [b"", b"[", b"[]", b"{}", b'{"images": "a"}', b'{"images": [1]}', b'{"images": ["*"]}'],
)
def test_json_that_is_refused(body: bytes) -> None:
    with pytest.raises(InputError, match="expected"):
        from_json(body, LIMITS, DONE)
    with pytest.raises(InputError, match="expected JSON"):
        from_json(b"[" * 100_000, LIMITS, DONE)
