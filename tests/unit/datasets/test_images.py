"""A file becomes RGB of 8 bits by exact values, or a sentence says why not; nothing hangs."""

import io
import os
import socket
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tapr.datasets import members
from tapr.datasets.images import decode, probe, read_image
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError

RED, BLUE, WHITE = [255, 0, 0], [0, 0, 255], [255] * 3


def values(data: bytes) -> list[Any]:
    """Every pixel of a decoded file, row by row; its size is checked on the way."""
    pixels = np.asarray(decode(data))
    assert pixels.dtype == np.uint8
    assert probe(data) == pixels.shape[:2]
    found: list[Any] = pixels.reshape(-1, 3).tolist()
    return found


def grey(*levels: int) -> list[list[int]]:
    return [[level] * 3 for level in levels]


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(width: int, height: int, bits: int, colour: int, rows: bytes, **chunks: bytes) -> bytes:
    """A PNG written by hand; every row of `rows` begins with its filter, 0."""
    header = struct.pack(">2I5B", width, height, bits, colour, 0, 0, 0)
    parts = {"IHDR": header, **chunks, "IDAT": zlib.compress(rows), "IEND": b""}
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body))
        + kind.encode()
        + body
        + struct.pack(">I", zlib.crc32(kind.encode() + body))
        for kind, body in parts.items()
    )


def tiff(order: str, width: int, pixels: bytes, tags: dict[int, int]) -> bytes:
    """A TIFF of one uncompressed row, written by hand; `order` is "<" or ">"."""
    start = 8
    found = {256: width, 257: 1, 258: 16, 259: 1, 262: 1, 273: start, 277: 1, 278: 1, **tags}
    found[279] = len(pixels)
    body = pixels + b"\0" * (len(pixels) % 2)
    entries = b"".join(
        struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in sorted(found.items())
    )
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", start + len(body))
    return head + body + struct.pack(f"{order}H", len(found)) + entries + bytes(4)


SIXTEEN = (0, 128, 129, 257, 32768, 65407, 65535)
EIGHT = (0, 0, 1, 1, 128, 255, 255)  # each divided by 257 and rounded


@pytest.mark.parametrize(
    "data",
    [
        png(7, 1, 16, 0, b"\0" + struct.pack(">7H", *SIXTEEN)),
        tiff("<", 7, struct.pack("<7H", *SIXTEEN), {}),
        tiff(">", 7, struct.pack(">7H", *SIXTEEN), {}),
        b"P5 7 1 65535\n" + struct.pack(">7H", *SIXTEEN),
        tiff("<", 7, struct.pack("<7H", *(65535 - value for value in SIXTEEN)), {262: 0}),
    ],
    ids=["png", "tiff", "tiff big-endian", "pgm", "tiff with white as zero"],
)
def test_16_bit_grey_is_scaled_by_its_full_range(data: bytes) -> None:
    assert values(data) == grey(*EIGHT)


def test_12_bit_grey_is_scaled_by_its_own_range() -> None:
    packed = bytes([0x00, 0x08, 0x00, 0xFF, 0xFF, 0xFF])  # 0, 2048, 4095, 4095
    assert values(tiff("<", 4, packed, {258: 12})) == grey(0, 128, 255, 255)
    assert values(b"P2 4 1 4095\n0 2048 4095 1000\n") == grey(0, 128, 255, 62)


def test_of_16_bit_colours_the_upper_8_bits_are_kept() -> None:
    row = b"\0" + struct.pack(">6H", 65535, 0, 0x80FF, 0x0100, 0x00FF, 0xFF00)
    assert values(png(2, 1, 16, 2, row)) == [[255, 0, 128], [1, 0, 255]]


@pytest.mark.parametrize(
    ("image", "kind"),
    [(Image.new("F", (3, 2), 0.5), "float"), (Image.new("I", (3, 2), 70_000), "32-bit")],
    ids=["float", "32-bit"],
)
def test_an_image_of_unknown_range_is_refused_by_name(image: Image.Image, kind: str) -> None:
    data = encoded(image, "TIFF")
    sentence = f"{kind} image, whose range is not known: expected 8 or 16 bits a channel"
    for read in (decode, probe):
        with pytest.raises(DataError, match=f"^{sentence}$"):
            read(data)


def test_signed_16_bit_values_are_refused_too() -> None:
    with pytest.raises(DataError, match="range is not known"):
        decode(tiff("<", 2, struct.pack("<2h", -5, 5), {339: 2}))


PALETTE = bytes([255, 0, 0, 0, 0, 255, 9, 8, 7])
INDICES = b"\0\0\1\2"


@pytest.mark.parametrize("transparency", [{}, {"tRNS": b"\x00\x80"}])
def test_a_palette_gives_its_colours_transparent_or_not(transparency: dict[str, bytes]) -> None:
    data = png(3, 1, 8, 3, INDICES, PLTE=PALETTE, **transparency)
    assert values(data) == [RED, BLUE, [9, 8, 7]]


def test_an_alpha_channel_is_dropped() -> None:
    assert values(png(2, 1, 8, 6, bytes([0, *RED, 0, *BLUE, 255]))) == [RED, BLUE]
    assert values(png(2, 1, 8, 4, bytes([0, 7, 0, 9, 128]))) == grey(7, 9)
    assert values(png(2, 1, 8, 2, bytes([0, *RED, *BLUE]), tRNS=struct.pack(">3H", *RED))) == [
        RED,
        BLUE,
    ]


@pytest.mark.parametrize("kind", ["TIFF", "JPEG"])
def test_cmyk(kind: str) -> None:
    inks = {(0, 0, 0, 0): WHITE, (0, 255, 255, 0): RED, (255, 255, 0, 0): BLUE, (0, 0, 0, 255): [0]}
    for ink, colour in inks.items():
        data = encoded(Image.new("CMYK", (8, 8), ink), kind)
        found = np.array(values(data))
        assert abs(found - np.array(colour)).max() <= (1 if kind == "JPEG" else 0)


def test_ycbcr() -> None:
    for colour, (luma, blue, red) in {
        (7, 7, 7): (7, 128, 128),
        (255, 0, 0): (76, 85, 255),
        (0, 0, 255): (29, 255, 107),
    }.items():
        found = np.array(values(encoded(Image.new("YCbCr", (2, 2), (luma, blue, red)), "TIFF")))
        assert abs(found - np.array(colour)).max() <= 1


def test_one_bit() -> None:
    assert values(png(3, 1, 1, 0, b"\0\xa0")) == grey(255, 0, 255)
    assert values(b"P1 3 1\n1 0 1\n") == grey(0, 255, 0)  # where 1 is black


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    frames = [Image.new("RGB", (4, 2), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], **options)
    assert values(data) == [RED] * 8


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize(
    ("orientation", "corner"),  # where the camera's upper left corner ends up
    [*enumerate([(0, 0), (0, 1), (1, 1), (1, 0)] * 2, start=1)],
)
def test_a_photograph_is_turned_as_its_exif_says(
    kind: str, orientation: int, corner: tuple[int, int]
) -> None:
    pixels = np.zeros((16, 32, 3), np.uint8)
    pixels[:8, :16] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(pixels), kind, exif=exif)
    upright = np.asarray(decode(data))
    assert upright.shape == ((16, 32, 3) if orientation < 5 else (32, 16, 3))
    assert probe(data) == upright.shape[:2]
    quarters = upright.reshape(2, upright.shape[0] // 2, 2, -1, 3).mean((1, 3, 4)).round()
    expected = np.zeros((2, 2))
    expected[corner] = 255
    assert np.array_equal(quarters, expected)
    if kind == "PNG":  # Pillow itself always turns a TIFF
        assert np.array_equal(np.asarray(decode(data, upright=False)), pixels)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    data = encoded(Image.new("RGB", (2, 2), "red"), "PNG")
    (tmp_path / "real.png").write_bytes(data)
    (tmp_path / "link.png").symlink_to("real.png")
    assert np.asarray(read_image(tmp_path / "link.png")).reshape(-1, 3).tolist() == [RED] * 4
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "zeros.jpg").symlink_to("/dev/zero")
    (tmp_path / "folder.jpg").mkdir()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "socket.jpg"))
    for name in ("pipe", "zeros", "folder", "socket"):
        with pytest.raises(DataError, match=r"^not a regular file$"):
            Preprocessing((3, 8, 8)).read(tmp_path / f"{name}.jpg")
    server.close()
    with pytest.raises(DataError, match="No such file"):
        read_image(tmp_path / "absent.jpg")
    with pytest.raises(DataError, match="null byte"):
        read_image(tmp_path / "zero\0byte.jpg")


def test_a_file_too_large_to_be_an_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(members.LARGEST + 1)  # sparse: takes no room
    with pytest.raises(DataError, match=r"large\.png: expected a file of at most 2 GiB"):
        read_image(path)


NOISE = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (png(60_000, 60_000, 8, 0, b""), "3600000000 pixels.* exceeds limit"),
        (png(2**31 - 1, 2**31 - 1, 8, 0, b""), "exceeds limit"),
        (encoded(Image.fromarray(NOISE), "PNG")[:-2000], "truncated"),
        (encoded(Image.fromarray(NOISE), "JPEG")[:-700], "truncated"),
        (b"", "it is not an image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "it is not an image"),
    ],
    ids=["bomb", "huge header", "truncated png", "truncated jpeg", "empty", "postscript"],
)
def test_what_cannot_be_decoded_is_a_sentence(data: bytes, sentence: str) -> None:
    for read in (decode, probe):
        with pytest.raises(DataError, match=sentence):
            read(data)


def test_a_very_long_image_is_not_enlarged_beyond_memory(tmp_path: Path) -> None:
    Image.new("1", (60_000, 1)).save(tmp_path / "line.png")
    with pytest.raises(DataError, match="too long for its width: of 1 x 60000 pixels"):
        Preprocessing((3, 224, 224)).read(tmp_path / "line.png")
    squashed = Preprocessing((3, 224, 224), mode="squash").read(tmp_path / "line.png")
    assert squashed.shape == (224, 224, 3)
