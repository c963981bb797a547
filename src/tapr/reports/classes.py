"""Accuracy by class for many classes: a table with a row for each class, which can be searched."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from tapr.reports.tables import Table, by_class

SHOWN = 20  # rows before the reader searches


class ClassRow(NamedTuple):
    """A class with the accuracy of each method on it."""

    name: str
    images: int
    shares: Sequence[float]  # of the images predicted right, one for each method
    change: float  # the largest difference from the unadapted model, or between methods


def class_rows(table: Table) -> list[ClassRow]:
    """Every class that has images, the most changed first."""
    found = by_class(table)
    known = table.setting.runs[0].cell.get("classes") or ()
    images: Counter[int] = Counter()
    for batch in table.setting.runs[0].batches:
        images.update(batch.labels or ())
    source = next((row.system.name for row in table.rows if not row.system.adapts), None)
    rows = []
    for number in found.classes:
        shares = [row[number] for row in found.rows.values() if number in row]
        base = [found.rows[source][number]] if source in found.rows else shares
        change = max(abs(share - other) for share in shares for other in base)
        name = str(known[number]) if number < len(known) else str(number)
        rows.append(ClassRow(name, images[number], shares, change))
    return sorted(rows, key=lambda row: -row.change)


def many(table: Table) -> dict[str, Any] | None:
    """The table of many classes as the page shows it: the methods, and a row for each class."""
    rows = class_rows(table)
    looks = [row.look for row in table.rows if row.mean]
    if not rows or not looks:
        return None
    cells = [
        {
            "name": row.name,
            "images": row.images,
            "change": f"{100 * row.change:.1f}",
            "shares": [f"{100 * share:.1f}" for share in row.shares],
            "hidden": place >= SHOWN,
        }
        for place, row in enumerate(rows)
    ]
    return {"looks": looks, "rows": cells, "shown": min(SHOWN, len(cells))}
