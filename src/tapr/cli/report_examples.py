"""The pixels of a report's examples: the images as the methods saw them, made or read again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    from tapr.records import RunRecord, Shift
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
    from tapr.reports.sheet import Cell, sheet
    from tapr.reports.titles import long

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


def _pixels(run: RunRecord, examples: list[Example]) -> dict[tuple[Shift, int], NDArray[np.uint8]]:
    from tapr.errors import DataError

    found: dict[tuple[Shift, int], NDArray[np.uint8]] = {}
    for shift in dict.fromkeys(example.domain for example in examples):
        mine = [example for example in examples if example.domain == shift]
        numbers = sorted({example.image for example in mine})
        domain = _domain(run, shift, numbers)
        found.update(zip([(shift, n) for n in numbers], domain.read(domain.numbers), strict=True))
        labels = dict(zip(numbers, [] if domain.labels is None else domain.labels, strict=False))
        if any(labels.get(example.image) != example.label for example in mine):
            raise DataError(f"the labels of {domain.origin} are not those in the records")
    return found


def _domain(run: RunRecord, shift: Shift, numbers: list[int]) -> Domain:
    """The domain that the run's record describes; what is not on this machine is not fetched."""
    from tapr.datasets import DATASETS, PUBLISHED, load
    from tapr.errors import DataError
    from tapr.runs.labels import placed
    from tapr.runs.preprocess import recorded
    from tapr.streams import clean, generated, published

    fit = recorded(run.setting.get("fit"))
    data, split = str(run.setting.get("data")), str(run.setting.get("split", "test"))
    origin = run.cell.get("origin") or {}
    if origin.get("made") == "generated" and data in PUBLISHED:
        data = PUBLISHED[data].clean
    if data in DATASETS and not DATASETS[data].where():
        raise DataError(f"{data} is not on this machine (`tapr data get {data}`)")
    if shift.corruption is None or shift.severity is None:
        found = clean(load(data, split, size=fit), numbers)
    elif origin.get("made") == "published":
        found = published(data, shift.corruption, shift.severity, numbers, fit)
    else:
        seed, dataset = origin.get("seed") or 0, load(data, split, size=fit)
        found = generated(dataset, shift.corruption, shift.severity, numbers, seed)
    names = run.cell.get("classes") or found.classes
    return placed(found, names, len(names))
