"""Published numbers stand beside measured ones in their own setting, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest

from tapr import names
from tapr.records import RunRecord
from tapr.reports import export, results
from tapr.reports.beside import Beside, beside, own
from tapr.reports.published import TABLES
from tapr.reports.tables import table
from tapr.reports.words import notes

Make = Callable[..., RunRecord]
FACTS = {
    "data": "cifar10c",
    "model": "models/wrn-28-10.pt",
    "protocol": "continual",
    "order": None,
    "images": 10_000,
    "batch_size": 200,
    "severities": [5],
    "origin": {"dataset": "cifar10c", "made": "published"},
}
METHODS = [("tent", {}), ("eata", {"source_images": "cifar10"}), ("deyo", {}), ("rpl", {})]


def found(systems: list[tuple[str, Any]] = METHODS, **changed: Any) -> Beside:
    corruptions = changed.pop("corruptions", list(names.STANDARD))
    return beside({**FACTS, **changed}, corruptions, systems, (*own(), *TABLES))


def test_each_method_has_its_number_and_its_source() -> None:
    shown = found()
    assert shown.numbers == [0.8, 0.821, None, 0.79]
    assert "Marsden" in shown.sources[0]
    assert "RTTDP" in shown.sources[3]
    assert shown.sources[2] == ""
    assert "tent and eata by Marsden" in shown.line
    assert "rpl by RTTDP" in shown.line
    assert "here" not in shown.line


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "cifar10-small"}, "for WRN-28-10, here the model is cifar10-small"),
        ({"protocol": "gradual"}, "for the protocol each, here it is gradual"),
        ({"rounds": 20}, "without rounds, here it is 20"),
        ({"burst": 3}, "without burst, here it is 3"),
        ({"order": "dirichlet"}, "for the order listed, here it is dirichlet"),
        ({"severities": [3]}, "for severity 5, here another"),
        ({"severities": [3, 5]}, "for severity 5, here another"),
        ({"corruptions": ["fog", "snow"]}, "means of 15 corruptions, and here some are missing"),
    ],
)
def test_in_another_setting_there_is_none_and_the_line_says_why(
    changed: dict[str, Any], said: str
) -> None:
    shown = found(**changed)
    assert not shown.any
    assert shown.numbers == [None] * 4
    assert shown.line.startswith("no published numbers shown: ")
    assert said in shown.line
    assert "\n" not in shown.line


def test_what_else_differs_is_said_beside_the_numbers() -> None:
    origin = {"dataset": "cifar10", "made": "generated"}
    line = found(images=20, batch_size=10, origin=origin, data="cifar10").line
    assert "10,000 images of each (here 20)" in line
    assert "batches of 200 (here 10)" in line
    assert "here corrupted by tapr" in line


def test_the_architecture_tells_the_model_too() -> None:
    assert found(model="a.pt", architecture="robustbench:Standard").any
    assert not found(model="a.pt", architecture="robustbench:Hendrycks2020AugMix_WRN").any


def test_the_papers_own_numbers_are_of_the_protocol_each() -> None:
    systems = [("tent", {}), ("pest", {}), ("pest", {"augmentation": "randaugment"}), ("roid", {})]
    shown = found(systems, protocol="each")
    assert shown.numbers == [0.814, 0.812, 0.809, None]
    assert "Sivaprasad & Fleuret" in shown.line
    assert shown.line.endswith("those of roid are for the protocol continual")


@pytest.mark.parametrize(
    ("method", "options", "expected"),
    [
        ("roid", {"preset": "released"}, 0.838),
        ("sar", {"preset": "benchmark"}, 0.796),
        ("tent", {"lr": 0.1}, None),
        ("tent", {"objective": "come"}, None),
        ("tent", {"preset": "online"}, None),
        ("tent", {"preset": "released", "lr": 0.1}, None),
        ("tent", None, None),
    ],
)
def test_a_number_is_of_a_method_with_its_own_options(
    method: str, options: dict[str, Any] | None, expected: float | None
) -> None:
    assert found([(method, options)]).numbers == [expected]


def test_data_of_which_nothing_was_published_needs_no_line() -> None:
    assert found(data="digits") == Beside([None] * 4, [""] * 4, "")


def continual(make_run: Make, model: str) -> RunRecord:
    domains = [f"{name}-5" for name in names.STANDARD]
    run = make_run("tent", domains, images=10, protocol="continual", batch_size=10, model=model)
    return RunRecord({**run.cell, "method": "tent", "options": {}}, {}, run.batches, run.end)


def test_a_reports_tables_have_the_column_with_its_source(make_run: Make) -> None:
    (setting,) = results.gather([continual(make_run, "wrn-28-10.pt")], [])
    shown = table(setting)
    assert [row.published for row in shown.rows] == [0.8]
    assert any(note.startswith("Published: Marsden") for note in notes(shown))
    markdown = export.to_markdown([shown])
    assert "| published |" in markdown
    assert "\nPublished: Marsden" in markdown
    assert r"Marsden, Doebler \& Yang" in export.to_latex([shown])
    *_, last = export.to_csv([shown]).splitlines()
    assert '0.800,"Marsden' in last


def test_without_a_match_a_report_has_the_reason_and_no_column(make_run: Make) -> None:
    (setting,) = results.gather([continual(make_run, "cifar10-small")], [])
    shown = table(setting)
    assert not shown.has_published
    assert "published |" not in export.to_markdown([shown])
    assert any(note.startswith("No published numbers shown") for note in notes(shown))
