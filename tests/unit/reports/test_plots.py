"""Figures: what is drawn, and how it becomes part of a page."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tapr.errors import InputError
from tapr.records import RunRecord
from tapr.reports import drawing as drawing_
from tapr.reports import plots, results
from tapr.reports.tables import Table, table

Make = Callable[..., RunRecord]


@pytest.fixture
def found(bench: Path) -> Table:
    (setting,) = results.read([bench]).settings
    return table(setting)


def of(runs: list[RunRecord]) -> Table:
    (setting,) = results.gather(runs, [])
    return table(setting)


def test_bars_are_the_tables_cells(found: Table) -> None:
    drawing = plots.bars(found)
    assert drawing
    (axes,) = drawing.figure.axes
    heights = [patch.get_height() for patch in axes.patches]  # type: ignore[attr-defined]
    assert heights == pytest.approx(
        [100 * cell.value for row in found.rows for cell in row.cells if cell]
    )
    assert [text.get_text() for text in axes.get_xticklabels()] == [
        "gauss.",
        "defocus",
        "fog",
        "contrast",
    ]


def test_every_figure_of_a_whole_bench(found: Table) -> None:
    names = [drawing.name for drawing in plots.drawings(found)]
    assert names == ["stream", "bars", "losses", "cost"]


def test_no_losses_without_a_loss_and_nothing_without_labels(make_run: Make) -> None:
    names = [drawing.name for drawing in plots.drawings(of([make_run("source")]))]
    assert names == ["stream", "bars", "cost"]
    run = make_run("source")
    batches = [b.__class__(**{**b.__dict__, "labels": None}) for b in run.batches]
    assert plots.drawings(of([RunRecord(run.cell, run.environment, batches, run.end)])) == []


def test_curve_is_the_mean_over_runs(make_run: Make) -> None:
    runs = [make_run("tent", [domain]) for domain in ("fog-5", "snow-5")]
    (setting,) = results.gather(runs, [])
    curve = plots.curve(setting.systems[0], plots.batch_accuracy)
    assert curve
    assert curve.x.tolist() == [50, 150, 250, 350]
    expected = np.mean([[b.correct / 100 for b in run.batches] for run in runs], axis=0)
    assert curve.y == pytest.approx(expected)


def test_a_loss_that_is_not_finite_is_left_out(make_run: Make) -> None:
    run = make_run("tent")
    run.batches[1].terms["entropy"] = float("nan")
    (setting,) = results.gather([run], [])
    assert plots.curve(setting.systems[0], plots.loss_term("entropy")) is None


def test_smooth_keeps_the_ends_and_constants() -> None:
    assert plots.smooth(np.full(100, 3.0)) == pytest.approx(np.full(100, 3.0))
    rough = np.tile([0.0, 1.0], 50)
    assert np.abs(np.diff(plots.smooth(rough))).max() < 0.2


def test_boundaries_of_a_stream(make_run: Make) -> None:
    run = make_run("tent", ["fog-5", "snow-5"], protocol="continual")
    (setting,) = results.gather([run], [])
    starts = [(start, str(domain)) for start, domain in plots.boundaries(setting)]
    assert starts == [(0, "fog-5"), (400, "snow-5")]
    assert plots.stream(table(setting))
    (setting,) = results.gather([make_run("tent")], [])
    assert plots.boundaries(setting) == []


def test_files(found: Table) -> None:
    drawing = plots.bars(found)
    assert drawing
    assert drawing_.png(drawing.figure).startswith(b"\x89PNG")
    root = ElementTree.fromstring(drawing_.svg(drawing.figure))
    texts = {"".join(node.itertext()).strip() for node in root.iter() if node.tag.endswith("text")}
    assert {"accuracy, %", "fog", "PEST AugMix"} <= texts
    assert drawing_.svg(drawing.figure) == drawing_.svg(drawing.figure)


def test_inline(found: Table) -> None:
    drawings = plots.drawings(found)
    parts = [drawing_.inline(drawing, f"k{number}") for number, drawing in enumerate(drawings)]
    root = ElementTree.fromstring("<page>" + "".join(parts) + "</page>")
    ids = [node.attrib["id"] for node in root.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids))
    for drawing, part in zip(drawings, parts, strict=True):
        assert f">{drawing.title}</title>" in part
        assert 'role="img"' in part
        assert "currentColor" in part
        assert drawing_.INK not in part
        for used in part.split("url(#")[1:]:
            assert used.partition(")")[0] in ids


def test_a_missing_package_names_the_extra() -> None:
    with pytest.raises(InputError, match=r"pip install 'torch-tapr\[report\]'"):
        drawing_.need("no_such_package.part")
