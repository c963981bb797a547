"""`tapr show`: a contact sheet of what the model sees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tapr.cli import app
from tapr.cli.completing import CORRUPTIONS, DATA, among

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tapr.datasets import Dataset
    from tapr.reports.sheet import Cell
    from tapr.streams import Domain

_ACROSS = 8  # clean images in a row
_LARGEST = 256  # pixels of an image's shorter side on the sheet


class _Grid(NamedTuple):
    rows: list[list[Cell]]
    labels: list[str]
    columns: list[str]


@app.command()
def show(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A data set, or `folder:PATH` for your images.",
            autocompletion=among(DATA),
        ),
    ],
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            help="A corruption, `standard` (15 of them) or `all` (19); may be repeated.",
            autocompletion=among(CORRUPTIONS),
        ),
    ] = None,
    severity: Annotated[
        list[int] | None,
        typer.Option(help="The severity, from 1 to 5; may be repeated.  [default: 5]"),
    ] = None,
    image: Annotated[
        list[int] | None, typer.Option(help="The number of an image; may be repeated.")
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=1, help="The number of images.  [default: 8, or 1 with several severities]"
        ),
    ] = None,
    split: str = typer.Option("test", help="The part of the data set."),
    size: Annotated[
        int | None, typer.Option(help="The side in pixels to which a folder's images are cropped.")
    ] = None,
    zoom: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many times to enlarge each image.  [default: to about 128 pixels]"
        ),
    ] = None,
    seed: int = typer.Option(0, help="The seed of the random corruptions."),
    out: Annotated[Path, typer.Option("--out", "-o", help="The picture to write.")] = Path(
        "sheet.png"
    ),
) -> None:
    """Draw a contact sheet of images, clean or corrupted, as PNG.

    A row is a corruption; a column is an image, or, when there is only one image, a severity.

    Example: `tapr show cifar10 --corruption standard --severity 1 --severity 5 -o sheet.png`
    """
    from tapr import files
    from tapr.corruptions import names_of
    from tapr.reports.sheet import sheet
    from tapr.streams.domains import choose, corrupted

    dataset, name = _load(source, split, size)
    severities = severity or [5]
    count = images or (1 if corruption and len(severities) > 1 else 8)
    numbers = choose(dataset, image or min(count, len(dataset)))
    if corruption:
        domains = corrupted(name or dataset, names_of(corruption), severities, numbers, seed)
        grid = (_by_severity if len(numbers) == 1 else _by_image)(dataset, domains, numbers)
    else:
        grid = _clean(dataset, numbers)
    page = sheet(grid.rows, columns=grid.columns, row_labels=grid.labels, zoom=zoom)
    with files.atomic(out) as part:
        page.save(part, "PNG", optimize=True)
    typer.echo(f"{out}: {page.width} x {page.height} pixels, images {_list(numbers)} of {source}")


def _load(source: str, split: str, size: int | None) -> tuple[Dataset, str | None]:
    """The clean data; and the name of the published set when its corruptions are wanted."""
    from tapr import datasets

    entry = datasets.PUBLISHED.get(source)
    if entry is not None and split == "test":
        return datasets.load(entry.clean), source
    return datasets.load(source, split, size=size), None


def _clean(dataset: Dataset, numbers: NDArray[np.int64]) -> _Grid:
    cells = _cells(dataset.images[numbers], _captions(dataset, numbers))
    rows = [cells[start : start + _ACROSS] for start in range(0, len(cells), _ACROSS)]
    return _Grid(rows, [], [])


def _by_image(dataset: Dataset, domains: Sequence[Domain], numbers: NDArray[np.int64]) -> _Grid:
    rows = [_cells(dataset.images[numbers])] + [_cells(domain.read(numbers)) for domain in domains]
    labels = ["clean"] + [f"{_corruption(domain)} {domain.severity}" for domain in domains]
    return _Grid(rows, labels, _captions(dataset, numbers))


def _by_severity(dataset: Dataset, domains: Sequence[Domain], numbers: NDArray[np.int64]) -> _Grid:
    rows: dict[str, list[Cell]] = {}
    columns = ["clean"]
    for domain in domains:
        row = rows.setdefault(_corruption(domain), _cells(dataset.images[numbers]))
        row += _cells(domain.read(numbers))
        if len(rows) == 1:
            columns.append(f"severity {domain.severity}")
    return _Grid(list(rows.values()), list(rows), columns)


def _corruption(domain: Domain) -> str:
    return str(domain.corruption).replace("_", " ")


def _cells(images: NDArray[np.uint8], captions: Sequence[str] = ()) -> list[Cell]:
    import numpy as np
    from PIL import Image

    from tapr.reports.sheet import Cell

    cells = []
    for place, pixels in enumerate(images):
        picture = Image.fromarray(pixels)
        picture = picture.reduce(max(1, round(min(picture.size) / _LARGEST)))
        cells.append(Cell(np.asarray(picture), captions[place] if captions else ""))
    return cells


def _captions(dataset: Dataset, numbers: NDArray[np.int64]) -> list[str]:
    if dataset.labels is None:
        return [str(number) for number in numbers]
    return [dataset.classes[label] for label in dataset.labels[numbers]]


def _list(numbers: NDArray[np.int64]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown}, ... ({len(numbers)})"
