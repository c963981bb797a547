"""`tapr views`: a contact sheet of the views that adaptation makes of your images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import AUGMENTATIONS, among

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from tapr.augment import Augmentation
    from tapr.reports.sheet import Cell

_LARGEST = 224  # pixels of an image's longer side; larger images are shrunk first


@app.command()
def views(
    source: Annotated[
        Path, typer.Argument(metavar="IMAGE_OR_FOLDER", help="An image file, or a folder of them.")
    ],
    augmentation: Annotated[
        str,
        typer.Option(
            help="The augmentation: `augmix`, `randaugment` or `identity`.",
            autocompletion=among(AUGMENTATIONS),
        ),
    ] = "augmix",
    count: Annotated[int, typer.Option(min=1, help="The number of views of each image.")] = 4,
    images: Annotated[
        int, typer.Option(min=1, help="The largest number of images to draw from a folder.")
    ] = 4,
    seed: Annotated[int, typer.Option(help="The seed of the views.")] = 0,
    out: Annotated[Path, typer.Option("--out", "-o", help="The PNG file to write.")] = Path(
        "views.png"
    ),
) -> None:
    """Draw each image and its views, with the ops and their parameters under each, as PNG.

    Example: `tapr views photos/ --augmentation randaugment --count 5 -o views.png`
    """
    from tapr import files, rng
    from tapr.augment import AUGMENTATIONS
    from tapr.errors import DataError
    from tapr.reports.sheet import sheet

    augment, generator = AUGMENTATIONS[augmentation](), rng.generator(seed, "views")
    rows, names = [], []
    for path, pixels in _read(source):
        rows.append(_row(pixels, augment, count, generator))
        names.append(path.name)
        if len(rows) == images:
            break
    if not rows:
        raise DataError(f"expected at least one readable image in {source}, found none")
    columns = ["original", *(f"view {number + 1}" for number in range(count))]
    page = sheet(rows, columns=columns, row_labels=names if len(names) > 1 else ())
    with files.atomic(out) as part:
        page.save(part, "PNG", optimize=True)
    typer.echo(f"{out}: {page.width} x {page.height} pixels, views of {', '.join(names)}")


def _read(source: Path) -> Iterator[tuple[Path, NDArray[np.uint8]]]:
    """Read the images in order of their names; those that cannot be read are reported."""
    import numpy as np

    from tapr.datasets.images import SUFFIXES, read_image
    from tapr.errors import DataError

    if not source.exists():
        raise DataError(f"expected an image or a folder, found nothing at {source}")
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    for path in found if source.is_dir() else [source]:
        try:
            picture = read_image(path)
        except DataError as error:
            typer.echo(f"skipped {path}: {error}", err=True)
            continue
        picture.thumbnail((_LARGEST, _LARGEST))
        yield path, np.array(picture)


def _row(
    pixels: NDArray[np.uint8], augment: Augmentation, count: int, generator: torch.Generator
) -> list[Cell]:
    import torch

    from tapr.reports.sheet import Cell

    batch = torch.from_numpy(pixels).permute(2, 0, 1).repeat(count, 1, 1, 1)
    params = augment.sample(batch.shape, generator)
    changed = augment.transform(batch, params).permute(0, 2, 3, 1).contiguous().numpy()
    captions = augment.describe(params) or [""] * count
    return [Cell(pixels), *map(Cell, changed, captions)]
