import subprocess
import sys

import numpy as np
import pytest
from PIL import ImageFont

from tapr.errors import InputError
from tapr.reports.sheet import Cell, sheet

RED = np.full((8, 8, 3), (255, 0, 0), np.uint8)
BLUE = np.full((8, 8, 3), (0, 0, 255), np.uint8)


def count(page: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((page == colour).all(axis=2).sum())


def test_small_pictures_are_enlarged_whole_and_unblurred() -> None:
    page = np.asarray(sheet([[Cell(RED), Cell(BLUE)]]))
    assert count(page, (255, 0, 0)) == count(page, (0, 0, 255)) == 128 * 128


def test_zoom_is_obeyed() -> None:
    page = np.asarray(sheet([[Cell(RED)]], zoom=3))
    assert count(page, (255, 0, 0)) == 24 * 24


def test_pictures_stand_left_to_right_and_top_to_bottom() -> None:
    page = np.asarray(sheet([[Cell(RED), Cell(BLUE)], [Cell(BLUE), Cell(RED)]], zoom=2))
    reds = np.argwhere((page == (255, 0, 0)).all(axis=2))
    assert len(reds) == 2 * 16 * 16
    top = reds[reds[:, 0] < page.shape[0] / 2]
    bottom = reds[reds[:, 0] >= page.shape[0] / 2]
    assert top[:, 1].max() < bottom[:, 1].min()


def ink(page: np.ndarray) -> int:
    return int((page.min(axis=2) < 200).sum())


def test_captions_names_and_labels_are_written() -> None:
    plain = sheet([[Cell(RED)]], zoom=20)
    told = [
        sheet([[Cell(RED, "rotate +1°")]], zoom=20),
        sheet([[Cell(RED)]], columns=["original"], zoom=20),
        sheet([[Cell(RED)]], row_labels=["cat.png"], zoom=20),
    ]
    for page in told:
        assert ink(np.asarray(page)) > ink(np.asarray(plain)) + 50


def test_long_captions_wrap_and_are_never_cut_by_the_page() -> None:
    short = sheet([[Cell(RED, "one")]], zoom=10)
    long = sheet([[Cell(RED, "many words that cannot stand on a single line of it")]], zoom=10)
    assert long.width == short.width
    assert long.height > short.height
    assert np.asarray(long)[-4:].min() == 255
    assert np.asarray(long)[:, -4:].min() == 255


def test_a_word_too_long_ends_in_an_ellipsis() -> None:
    page = sheet([[Cell(RED, "x" * 100)]], zoom=10)
    assert np.asarray(page)[:, -4:].min() == 255


def test_pictures_of_different_sizes_share_a_sheet() -> None:
    wide = np.full((4, 16, 3), (0, 255, 0), np.uint8)
    page = np.asarray(sheet([[Cell(RED), Cell(wide)], [Cell(BLUE)]], zoom=2))
    assert count(page, (0, 255, 0)) == 4 * 16 * 4


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one picture"),
        ([[]], "at least one picture"),
        ([[Cell(RED[..., 0])]], r"uint8 pictures \[H, W, 3\], got uint8 \(8, 8\)"),
        ([[Cell(RED.astype(float))]], "got float64"),
    ],
)
def test_wrong_pictures_are_refused(rows: list[list[Cell]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sheet(rows)


def test_the_font_can_be_enlarged() -> None:
    assert isinstance(ImageFont.load_default(size=13), ImageFont.FreeTypeFont)


def test_a_sheet_needs_no_torch() -> None:
    code = "import sys, tapr.reports.sheet; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
