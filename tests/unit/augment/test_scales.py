"""The scales in docs/augmentations.md are those of the code."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tapr.augment import augmix, randaugment
from tapr.augment.scales import Range

PAGE = (Path(__file__).parents[3] / "docs" / "augmentations.md").read_text("utf-8")


def told(span: Range) -> str:
    """A range as the page writes it."""
    end = "1/3" if span.end == 1 / 3 else f"{span.end:g}"
    if span.start == span.end:
        return ""
    if span.signed and span.start:
        return f"{span.start:g} ± 0 → {span.end - span.start:g}"
    sign, unit = "± " if span.signed else "", " sides" if span.relative else ""
    return f"{sign}{span.start:g} → {end}{unit}"


def rows(title: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Each row of a table: its ops, and the text of its named columns."""
    lines = iter(PAGE.split(title)[1].strip().splitlines())
    columns = [cell.strip().strip("`") for cell in next(lines).strip("|").split("|")]
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        yield cells[0].split(", "), dict(zip(columns, cells, strict=True))


@pytest.mark.parametrize(
    ("title", "scales"),
    [
        ("RandAugment, levels 0 → 30:", randaugment.SCALES),
        ("AugMix, levels 0 → 10:", augmix.SCALES),
    ],
)
def test_the_page_tells_the_scales(title: str, scales: Mapping[str, Mapping[str, Range]]) -> None:
    for name, scale in scales.items():
        page = {op: cells[name] for ops, cells in rows(title) for op in ops}
        assert page == {op: told(span) for op, span in scale.items()}
        whole = {op for ops, cells in rows(title) for op in ops if "rounded" in cells["parameter"]}
        assert whole >= {op for op, span in scale.items() if span.whole} - {"solarize", "posterize"}
