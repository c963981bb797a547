"""The pixels of a report's examples: the images as the methods saw them, made or read again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from tapr.records import RunRecord
    from tapr.reports.examples import Example
    from tapr.reports.html import Gallery
    from tapr.reports.tables import Table
    from tapr.streams import Domain


def gallery(table: Table) -> Gallery:
    """Images that the best method fixed or broke, or a sentence why they cannot be shown."""
    from tapr.errors import TaprError
    from tapr.reports.examples import choose
    from tapr.reports.html import Gallery

    chosen = choose(table)
    if chosen is None or not (chosen.fixed or chosen.broken):
        return Gallery()
    try:
        pixels = _pixels(chosen.run, [*chosen.fixed, *chosen.broken])
    except TaprError as error:
        return Gallery(why_not=f"The images themselves cannot be shown here: {error}.")
    return Gallery(chosen, pixels)


def contact_sheet(shown: Gallery) -> Image.Image | None:
    """The same examples as one picture; None when there is none."""
    from tapr.reports.names import long
    from tapr.reports.sheet import Cell, sheet

    if shown.examples is None or not shown.pixels:
        return None

    def cells(group: list[Example]) -> list[Cell]:
        return [
            Cell(
                shown.pixels[e.domain, e.image],
                f"{e.truth}: {e.before} > {e.after}\n{long(e.domain)}",
            )
            for e in group
        ]

    rows = {"fixed": cells(shown.examples.fixed), "broken": cells(shown.examples.broken)}
    kept = {label: row for label, row in rows.items() if row}
    return sheet(list(kept.values()), row_labels=list(kept))


def _pixels(run: RunRecord, examples: list[Example]) -> dict[tuple[str, int], NDArray[np.uint8]]:
    from tapr.errors import DataError

    found: dict[tuple[str, int], NDArray[np.uint8]] = {}
    for name in dict.fromkeys(example.domain for example in examples):
        numbers = sorted({example.image for example in examples if example.domain == name})
        domain = _domain(run, name, numbers)
        found.update(zip([(name, n) for n in numbers], domain.read(domain.numbers), strict=True))
        labels = dict(zip(numbers, [] if domain.labels is None else domain.labels, strict=False))
        if any(labels.get(e.image) != e.label for e in examples if e.domain == name):
            raise DataError(f"the labels of {domain.origin} are not those in the records")
    return found


def _domain(run: RunRecord, name: str, numbers: list[int]) -> Domain:
    """The domain that the run's record describes; what is not on this machine is not fetched."""
    from tapr.datasets import DATASETS, FOLDER, PUBLISHED, load
    from tapr.errors import DataError
    from tapr.reports.names import split
    from tapr.streams import clean, generated, published

    data, origin = str(run.cell.get("data")), str(run.cell.get("origin"))
    part = str(run.cell.get("split") or "test")
    corruption, severity = split(name)
    source = data if data.startswith(FOLDER) else re.split("[:,]", origin)[0]
    if source in DATASETS and not DATASETS[source].where():
        raise DataError(f"{source} is not on this machine (`tapr data get {source}`)")
    if severity is None:
        return clean(load(source, part), numbers)
    if source in PUBLISHED:
        return published(source, corruption, severity, numbers)
    seed = re.search(r"seed (\d+)", origin)
    return generated(load(source, part), corruption, severity, numbers, int(seed[1]) if seed else 0)
