"""USPS: fabricated files in the two official formats; damaged and foreign ones refused."""

import bz2
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr import cache
from tapr.datasets import DATASETS, load
from tapr.datasets.usps import SPLITS, VALUES, read_usps
from tapr.errors import DataError

COUNTS = (2, 1, 1, 1, 1, 1, 1, 1, 1, 3)
LABELS = np.repeat(np.arange(10), COUNTS)[::-1]
IMAGES = np.random.default_rng(0).integers(-4, 5, (len(LABELS), VALUES)) / 4


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the official files had 13 images."""
    for split, files in list(SPLITS.items()):
        monkeypatch.setitem(SPLITS, split, files._replace(counts=COUNTS))


def zip_lines() -> list[str]:
    """With a space at each line's end, as in the official file."""
    rows = zip(LABELS, IMAGES, strict=True)
    return [f"{label} {' '.join(f'{v:.3f}' for v in image)} " for label, image in rows]


def libsvm_lines() -> list[str]:
    return [
        f"{label + 1} " + " ".join(f"{place}:{v}" for place, v in enumerate(image, 1))
        for label, image in zip(LABELS, IMAGES, strict=True)
    ]


def text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


WRITTEN: dict[str, Callable[[], bytes]] = {
    "zip.test.gz": lambda: gzip.compress(text(zip_lines())),
    "zip.test": lambda: text(zip_lines()),
    "usps.t.bz2": lambda: bz2.compress(text(libsvm_lines())),
    "usps.t": lambda: text(libsvm_lines()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_both_formats_packed_or_not(tmp_path: Path, watch: Any, name: str) -> None:
    (tmp_path / name).write_bytes(WRITTEN[name]())
    DATASETS["usps"].get(watch, tmp_path)
    assert watch.notes == [f"usps test is in {tmp_path}, verified"]
    data = load("usps")
    assert data.images.shape == (13, 32, 32, 3)
    assert data.labels is not None
    assert data.labels.tolist() == LABELS.tolist()
    corners = np.rint((IMAGES.reshape(-1, 16, 16)[:, ::15, ::15] + 1) * 127.5)
    for channel in range(3):
        np.testing.assert_array_equal(data.images[:, ::31, ::31, channel], corners)
    assert DATASETS["usps"].verify(watch) == []


def test_the_enlargement_keeps_what_is_flat_and_what_is_upright(tmp_path: Path) -> None:
    image = np.full((16, 16), -1.0)
    image[:8] = 1
    lines = [f"{label} {' '.join(map(str, image.ravel()))}" for label in LABELS]
    (tmp_path / "zip.test").write_bytes(text(lines))
    pixels = read_usps(tmp_path, "test")[0][0, :, :, 0]
    assert (pixels[:15] == 255).all()
    assert (pixels[17:] == 0).all()
    assert pixels[15, 0] == pytest.approx(0.75 * 255, abs=0.5)


def test_without_files(tmp_path: Path, watch: Any) -> None:
    with pytest.raises(DataError, match=r"not downloaded for you: put zip\.train\.gz and zip"):
        DATASETS["usps"].get(watch)
    with pytest.raises(DataError, match="usps is not here; `tapr data get usps --from FOLDER`"):
        load("usps")
    with pytest.raises(DataError, match="it holds none of them"):
        DATASETS["usps"].get(watch, tmp_path)
    with pytest.raises(DataError, match="nowhere is not a folder"):
        DATASETS["usps"].get(watch, tmp_path / "nowhere")


def _changed(line: int, old: str, new: str) -> bytes:
    lines = zip_lines()
    assert old in lines[line]
    lines[line] = lines[line].replace(old, new, 1)
    return text(lines)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("zip.test.gz", WRITTEN["zip.test.gz"]()[:-20], r"zip\.test\.gz is not a whole \.gz file"),
        ("usps.t.bz2", WRITTEN["usps.t.bz2"]()[:-20], r"usps\.t\.bz2 is not a whole \.bz2 file"),
        ("zip.test.gz", b"<html>", r"zip\.test\.gz is not a whole \.gz file"),
        ("zip.test", WRITTEN["zip.test"]()[:-40], "line 13: expected a label and 256 values"),
        ("zip.test", text(zip_lines()[:-1]), "not the test split of usps: expected 13 .* got 12"),
        ("zip.test", b"", "not the test split of usps: expected 13 images.* got 0"),
        ("zip.test", _changed(0, "9 ", "10 "), "line 1: expected a label from 0 to 9, got 10"),
        ("zip.test", _changed(2, "9 ", "8.5 "), "line 3: expected a label from 0 to 9, got 8.5"),
        ("zip.test", _changed(0, "9 ", "8 "), "not the test split of usps"),
        ("zip.test", _changed(1, "1.000", "1.001"), "values from -1 to 1, got -?1.001"),
        ("zip.test", _changed(1, "1.000", "nan"), "values from -1 to 1, got -?nan"),
        ("zip.test", _changed(1, "1.000", "one"), "expected lines of numbers"),
        ("zip.test", b"\xff\xfe", "expected lines of numbers"),
        ("usps.t", text(libsvm_lines()).replace(b" 7:", b" 8:"), "1: to 256: in every line"),
        ("usps.t", text(libsvm_lines()).replace(b"10 ", b"11 "), "label from 1 to 10, got 11"),
        ("usps.t", text(zip_lines()), "got 257 numbers instead of 513"),
    ],
)
def test_damaged_files(tmp_path: Path, watch: Any, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        DATASETS["usps"].get(watch, tmp_path)
    assert not (cache.folder() / "usps").exists(), "nothing is remembered"


def test_a_split_that_is_not_there(tmp_path: Path, watch: Any) -> None:
    (tmp_path / "zip.test").write_bytes(WRITTEN["zip.test"]())
    DATASETS["usps"].get(watch, tmp_path)
    with pytest.raises(DataError, match="usps has no train split in"):
        load("usps", "train")
    (tmp_path / "zip.test").write_bytes(b"")
    assert "not the test split" in DATASETS["usps"].verify(watch)[0]
    (tmp_path / "zip.test").unlink()
    assert "holds none of" in DATASETS["usps"].verify(watch)[0]
