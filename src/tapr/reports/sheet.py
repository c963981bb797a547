"""A contact sheet: small images in a grid, with a caption under each."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tapr.errors import InputError

_SHORTEST = 128  # small images are enlarged to at least this many pixels
_MARGIN, _GAP, _LEADING = 20, 14, 4
_PAPER, _INK, _FAINT = (255, 255, 255), (34, 34, 34), (112, 112, 112)
_HEADING, _CAPTION = 15, 13


class Cell(NamedTuple):
    """One picture of the sheet and its caption."""

    image: NDArray[np.uint8]  # [H, W, 3]
    caption: str = ""


@cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=size)


def _width(text: str, size: int) -> int:
    return int(np.ceil(_font(size).getlength(text)))


def _wrap(text: str, width: int, size: int) -> list[str]:
    """Break at spaces so that every line fits; a lone word too long is cut with an ellipsis."""
    lines: list[str] = []
    if not text:
        return lines
    for word in (word for part in text.split("\n") for word in [*part.split(" "), "\n"]):
        if word == "\n":
            lines.append("")
            continue
        joined = f"{lines[-1]} {word}".strip() if lines else word
        if lines and _width(joined, size) <= width:
            lines[-1] = joined
            continue
        while len(word) > 1 and _width(word, size) > width:
            word = word.rstrip("…")[:-1] + "…"
        if lines and not lines[-1]:
            lines[-1] = word
        else:
            lines.append(word)
    return lines[:-1] if lines and not lines[-1] else lines


def _check(rows: Sequence[Sequence[Cell]]) -> None:
    if not any(rows):
        raise InputError("expected at least one picture for the sheet, got none")
    for cell in (cell for row in rows for cell in row):
        if cell.image.ndim != 3 or cell.image.shape[2] != 3 or cell.image.dtype != np.uint8:
            raise InputError(
                f"expected uint8 pictures [H, W, 3], got {cell.image.dtype} {cell.image.shape}"
            )


class _Layout(NamedTuple):
    zoom: int
    label: int  # width of the row labels
    cell: int  # width of a column
    heading: int  # height of the column names
    heights: list[int]  # of each row's pictures
    captions: list[int]  # height of each row's captions


def _lines(count: int, size: int) -> int:
    return count * (size + _LEADING) + (_LEADING if count else 0)


def _layout(
    rows: Sequence[Sequence[Cell]],
    columns: Sequence[str],
    row_labels: Sequence[str],
    zoom: int | None,
) -> _Layout:
    cells = [cell for row in rows for cell in row]
    if zoom is None:
        shortest = min(min(cell.image.shape[:2]) for cell in cells)
        zoom = max(1, -(-_SHORTEST // shortest))
    width = max(zoom * cell.image.shape[1] for cell in cells)
    return _Layout(
        zoom=zoom,
        label=max((_width(label, _HEADING) for label in row_labels), default=-_GAP) + _GAP,
        cell=width,
        heading=_lines(max((len(_wrap(name, width, _HEADING)) for name in columns), default=0), 15),
        heights=[max((zoom * cell.image.shape[0] for cell in row), default=0) for row in rows],
        captions=[
            _lines(max((len(_wrap(c.caption, width, _CAPTION)) for c in row), default=0), _CAPTION)
            for row in rows
        ],
    )


def sheet(
    rows: Sequence[Sequence[Cell]],
    *,
    columns: Sequence[str] = (),
    row_labels: Sequence[str] = (),
    zoom: int | None = None,
) -> Image.Image:
    """Draw rows of captioned pictures; small ones are enlarged by a whole factor, unblurred.

    >>> black = Cell(np.zeros((32, 32, 3), np.uint8), "black")
    >>> sheet([[black, black]], columns=["left", "right"]).mode
    'RGB'
    """
    _check(rows)
    plan = _layout(rows, columns, row_labels, zoom)
    left = _MARGIN + plan.label
    pitch = plan.cell + _GAP
    width = left + max(max(map(len, rows)), len(columns)) * pitch - _GAP + _MARGIN
    height = 2 * _MARGIN + plan.heading + sum(plan.heights) + sum(plan.captions)
    page = Image.new("RGB", (width, height + _GAP * (len(rows) - 1)), _PAPER)
    pen = ImageDraw.Draw(page)

    def write(text: str, x: int, y: int, size: int, ink: tuple[int, int, int]) -> None:
        for number, line in enumerate(_wrap(text, plan.cell, size)):
            pen.text((x, y + number * (size + _LEADING)), line, ink, _font(size))

    for column, name in enumerate(columns):
        write(name, left + column * pitch, _MARGIN - _LEADING, _HEADING, _INK)
    top = _MARGIN + plan.heading
    for number, row in enumerate(rows):
        if number < len(row_labels):
            middle = top + plan.heights[number] // 2
            pen.text((_MARGIN, middle), row_labels[number], _INK, _font(_HEADING), anchor="lm")
        for column, cell in enumerate(row):
            picture = Image.fromarray(cell.image)
            size = (picture.width * plan.zoom, picture.height * plan.zoom)
            x = left + column * pitch
            page.paste(picture.resize(size, Image.Resampling.NEAREST), (x, top))
            write(cell.caption, x, top + plan.heights[number] + _LEADING, _CAPTION, _FAINT)
        top += plan.heights[number] + plan.captions[number] + _GAP
    return page
