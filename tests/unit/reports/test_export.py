"""Tables as CSV, Markdown and LaTeX; the spec as TOML."""

import csv
import io
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tapr.records import RunRecord
from tapr.reports import results
from tapr.reports.export import spec, to_csv, to_latex, to_markdown
from tapr.reports.tables import Table, table

Make = Callable[..., RunRecord]


@pytest.fixture
def found(bench: Path) -> Table:
    (setting,) = results.read([bench]).settings
    return table(setting)


def test_csv_has_every_number(found: Table) -> None:
    lines = list(csv.DictReader(io.StringIO(to_csv([found]))))
    assert len(lines) == 6 * (4 + 1)
    row = next(row for row in found.rows if row.system.method == "tent")
    means = [line for line in lines if line["domain"] == "mean of 4"]
    (mean,) = [line for line in means if line["method"] == "tent"]
    assert row.mean
    assert float(mean["accuracy"]) == pytest.approx(row.mean.value)
    assert float(mean["low"]) == pytest.approx(row.mean.interval.low, abs=1e-6)
    assert (mean["interval"], mean["seeds"], mean["finished"]) == ("images", "1", "True")
    assert (mean["model"], mean["severity"], mean["paper"]) == ("cifar10-small", "5", "0.814")


def test_markdown(found: Table) -> None:
    lines = to_markdown([found]).splitlines()
    head, rule, *body = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in (head, rule, *body)}) == 1
    assert "| gauss. | defocus | fog | contrast | mean of 4 | 95 % interval | paper |" in head
    assert len(body) == 6
    best = max(found.rows, key=lambda row: row.mean.value if row.mean else 0)
    assert best.mean
    assert f"**{100 * best.mean.value:.1f}**" in to_markdown([found])


def test_latex(found: Table) -> None:
    text = to_latex([found])
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")].splitlines()[1:-1]
    assert {line.count("&") for line in body} == {8}
    assert all(line.endswith(r"\\") for line in body)
    assert r"95 \% interval" in text
    assert "_" not in text
    assert text.count(r"\begin") == text.count(r"\end") == 2


def test_unfinished_cells_are_marked(make_run: Make) -> None:
    run = make_run("tent")
    cut = RunRecord(run.cell, run.environment, run.batches[:1], None)
    (setting,) = results.gather([cut], [])
    assert "†" in to_markdown([table(setting)])
    assert r"$^\dagger$" in to_latex([table(setting)])


def test_settings_have_a_table_each(make_run: Make) -> None:
    settings = results.gather([make_run("tent"), make_run("tent", batch_size=50)], [])
    text = to_markdown([table(setting) for setting in settings])
    assert text.count("### ") == 2
    assert "batches of 50" in text


def test_the_spec_makes_the_same_runs(found: Table) -> None:
    from tapr.runs.spec import make

    made = make(tomllib.loads(spec(found.setting)))
    assert made.corruptions == ("gaussian_noise", "defocus_blur", "fog", "contrast")
    assert (made.images, made.batch_size, made.seeds, made.severities) == (400, 100, (0,), (5,))
    assert made.methods["pest-control"]["lr"] == 0.0
    assert "seed" not in made.methods["tent"]


def test_the_spec_of_a_stream_and_of_clean_images(make_run: Make) -> None:
    run = make_run("tent", ["fog-1", "fog-3"], protocol="gradual", order="shuffled")
    (setting,) = results.gather([run], [])
    values = tomllib.loads(spec(setting))
    assert (values["corruptions"], values["severities"]) == (["fog"], [1, 3])
    assert (values["protocol"], values["order"]) == ("gradual", "shuffled")
    (setting,) = results.gather([make_run("tent", ["clean"])], [])
    values = tomllib.loads(spec(setting))
    assert values["corruptions"] == []
    assert "severities" not in values
