"""`tapr corrupt`: a corrupted test set on disk, in the layout of the published ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import CORRUPTIONS, DATA, among

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tapr.datasets import Dataset
    from tapr.streams import Domain

RECORD = "tapr-corrupt.json"
_PIXELS = 1 << 22  # corrupted at a time: 4,096 images of 32 x 32


@app.command()
def corrupt(
    source: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="The name of a data set, or `folder:PATH` for your own images.",
            autocompletion=among(DATA),
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write the files to.")],
    corruption: Annotated[
        list[str] | None,
        typer.Option(
            help="A corruption, `standard` (15 of them) or `all` (19); may be repeated.  "
            "[default: standard]",
            autocompletion=among(CORRUPTIONS),
        ),
    ] = None,
    severity: Annotated[
        list[int] | None,
        typer.Option(help="A severity from 1 to 5; may be repeated.  [default: all five]"),
    ] = None,
    images: Annotated[
        int | None, typer.Option(help="The number of images to corrupt.  [default: all]")
    ] = None,
    split: str = typer.Option("test", help="The split of the data set to corrupt."),
    size: Annotated[
        int | None,
        typer.Option(
            help="The side in pixels to which a folder's images are resized and cropped.  "
            "[default: their own size]"
        ),
    ] = None,
    seed: int = typer.Option(0, help="The seed of the random corruptions."),
) -> None:
    """Write corrupted images in the layout of CIFAR-10-C: NAME.npy and labels.npy.

    Each NAME.npy is uint8 [severities x images, height, width, 3], severity after severity.
    A file appears only when it is complete; after an interruption, the same command resumes.

    Example: `tapr corrupt cifar10 -o CIFAR-10-C`
    """
    from tapr import datasets
    from tapr.corruptions import names_of
    from tapr.streams.domains import corrupted

    names = names_of(corruption or ["standard"])
    severities = sorted(set(severity or range(1, 6)))
    dataset = datasets.load(source, split, size=size)
    groups = {name: corrupted(dataset, [name], severities, images, seed) for name in names}
    first = groups[names[0]][0]
    _claim(out, _settings(dataset, first, severities, seed))
    _write_labels(out / "labels.npy", first, len(severities))
    shape = (len(severities) * len(first), *dataset.images.shape[1:])
    for name, domains in groups.items():
        path = out / f"{name}.npy"
        kept = _is_whole(path, shape)
        if not kept:
            _write_images(path, domains, shape)
        typer.echo(f"{path}: {'kept, ' if kept else ''}{shape[0]} images")


def _settings(
    dataset: Dataset, domain: Domain, severities: Sequence[int], seed: int
) -> dict[str, object]:
    """All that decides the files' bytes."""
    import hashlib

    import numpy as np

    import tapr

    digest = hashlib.sha256()
    for numbers in _pieces(domain, dataset.images.shape):
        digest.update(np.ascontiguousarray(dataset.images[numbers]).data)
    return {
        "data": dataset.name,
        "images": len(domain),
        "sha256": digest.hexdigest(),
        "severities": list(severities),
        "seed": seed,
        "tapr": tapr.__version__,
    }


def _claim(folder: Path, settings: dict[str, object]) -> None:
    """Claim an empty folder; refuse one that is not ours or was started with other settings."""
    import json

    from tapr import files
    from tapr.errors import DataError

    record = folder / RECORD
    if record.exists():
        try:
            begun = dict(json.loads(record.read_text()))
        except (ValueError, TypeError) as error:
            raise DataError(f"{record} is damaged: {error}; empty the folder") from error
        different = [key for key in settings if begun.get(key) != settings[key]]
        if different:
            key = different[0]
            raise DataError(
                f"{folder} was started with {key} = {begun.get(key)}, now {settings[key]}; "
                "choose another folder, or empty this one"
            )
        return
    if folder.is_dir() and any(folder.glob("*.npy")):
        raise DataError(
            f"{folder} has .npy files that `tapr corrupt` did not write; choose another folder"
        )
    with files.atomic(record) as part:
        part.write_text(json.dumps(settings, indent=2) + "\n")


def _write_labels(path: Path, domain: Domain, severities: int) -> None:
    import numpy as np

    from tapr import files

    if domain.labels is None:
        typer.echo("the data has no labels: labels.npy is left out")
        return
    with files.atomic(path) as part, part.open("wb") as file:
        np.save(file, np.tile(domain.labels, severities))


def _is_whole(path: Path, shape: tuple[int, ...]) -> bool:
    import numpy as np

    try:
        array: NDArray[np.uint8] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return False
    return array.dtype == np.uint8 and array.shape == shape


def _write_images(path: Path, domains: Sequence[Domain], shape: tuple[int, ...]) -> None:
    import numpy as np

    from tapr import files
    from tapr.cli.progress import watching

    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    # Written piece by piece, not memory-mapped: a full disk is then an error, not a crash.
    with (
        watching(f"corrupting: {path.stem}") as watch,
        files.atomic(path) as part,
        part.open("wb") as file,
    ):
        np.lib.format.write_array_header_1_0(file, header)
        done = 0
        for domain in domains:
            for numbers in _pieces(domain, shape):
                file.write(domain.read(numbers).data)
                done += len(numbers)
                watch.progress(done, shape[0])


def _pieces(domain: Domain, shape: tuple[int, ...]) -> Iterator[NDArray[np.int64]]:
    step = max(1, _PIXELS // (shape[1] * shape[2]))
    for start in range(0, len(domain), step):
        yield domain.numbers[start : start + step]
