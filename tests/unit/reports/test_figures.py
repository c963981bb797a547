"""Figures by name: which runs are on them, what they say, and what they need."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.records import RunRecord, Shift
from tapr.reports import figures, results
from tapr.reports.grids import Grid, to_csv

FOG = Shift("fog-5", "fog", 5)
PEST = {"method": "pest", "statistics": "running", "augmentation": "randaugment", "lr": 1e-4}
PEST |= {"consistency": "jensen_shannon", "consistency_weight": 1.0, "entropy_weight": 1.0}
PEST |= {"augmentation_options": {"n": 1, "m": 1}, "prior": 16.0, "views": 2}


@pytest.fixture
def ablations(
    tmp_path: Path, make_run: Callable[..., RunRecord], save_run: Callable[..., Path]
) -> Path:
    """Made-up runs of several ablations in one folder, which share the default run."""
    folder = tmp_path / "ablation"

    def add(label: str, batch_size: int = 100, **changed: Any) -> None:
        recipe = {"method": "source"} if label == "source" else {**PEST, **changed}
        for domain in ("fog-5", "gaussian_noise-5"):
            run = make_run(label, [domain], recipe=recipe, batch_size=batch_size)
            number = len(list(folder.glob("*")))
            save_run(run, tmp_path / "one").rename(folder / f"{number}.jsonl")

    folder.mkdir()
    add("source")
    add("pest-randaugment")
    for lr in (1e-6, 1e-2):
        add("pest-randaugment", lr=lr)
    for statistics in ("running", "blend"):
        for size in (1, 10, 400):
            add("pest-randaugment", size, statistics=statistics)
    add("entropy", consistency_weight=0.0)
    add("squared", consistency="squared_error", entropy_weight=0.0)
    for n, m in ((1, 1), (1, 5), (3, 1), (3, 5)):
        add("consistency", entropy_weight=0.0, augmentation_options={"n": n, "m": m})
    for severity, depth in ((1, 1), (1, 3), (5, 1), (5, 3)):
        options = {"severity": severity, "depth": depth, "width": 1}
        add("augmix", augmentation="augmix", augmentation_options=options)
    return folder


def grid(folder: Path, name: str) -> Grid:
    (found,) = figures.find(name, results.read([folder]).settings)
    return found.grid


def test_a_line_has_the_runs_that_differ_in_its_setting_alone(ablations: Path) -> None:
    lr = grid(ablations, "lr")
    assert lr.places() == [(1e-6,), (1e-4,), (1e-2,)]
    assert [series.label for series in lr.series] == ["PEST RandAugment"]
    assert [str(domain) for domain in lr.domains] == ["gaussian_noise-5", "fog-5"]
    assert 0 < lr.levels[FOG].value < lr.series[0].points[FOG][1e-4,].value


def test_batch_sizes_of_two_policies_are_two_lines(ablations: Path) -> None:
    found = grid(ablations, "batch-size")
    lines = {series.label: sorted(series.points[FOG]) for series in found.series}
    assert lines == {
        "running statistics": [(1,), (10,), (100,), (400,)],
        "blended statistics, prior 16": [(1,), (10,), (400,)],
    }


def test_the_losses_are_told_apart_by_their_terms(ablations: Path) -> None:
    found = grid(ablations, "loss")
    titles = {figures.loss_title(at) for at in found.places()}
    assert titles == {
        "consistency and entropy",
        "consistency alone",
        "entropy alone",
        "squared error alone",
    }


def test_grids_have_a_circle_for_each_pair(ablations: Path) -> None:
    assert grid(ablations, "randaugment").places() == [(1, 1), (1, 5), (3, 1), (3, 5)]
    augmix = grid(ablations, "augmix")
    assert augmix.axes == ("severity", "depth", "width")
    assert augmix.places() == [(1, 1, 1), (1, 3, 1), (5, 1, 1), (5, 3, 1)]


def test_the_numbers_are_the_records(ablations: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(grid(ablations, "lr")))))
    assert len(rows) == 2 * (1 + 3)
    assert rows[0]["series"] == "unadapted"
    runs = results.read([ablations]).settings
    (source,) = (s for setting in runs for s in setting.systems if not s.adapts)
    (run,) = (run for run in source.runs if str(run.shifts[0]) == rows[0]["domain"])
    assert float(rows[0]["accuracy"]) == run.accuracy
    assert float(rows[0]["low"]) < float(rows[0]["accuracy"]) < float(rows[0]["high"])


def test_unfinished_runs_are_not_shown(ablations: Path) -> None:
    for path in ablations.glob("*.jsonl"):
        if '"lr":1e-06' in path.read_text():
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:-2]))
    assert grid(ablations, "lr").places() == [(1e-4,), (1e-2,)]


def test_the_command_draws_all_it_can_or_what_is_named(ablations: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures"
    done = CliRunner().invoke(app, ["figures", str(ablations), "-o", str(out), "--csv"])
    assert done.exit_code == 0, done.output
    made = {"lr", "batch-size", "loss", "randaugment", "augmix"}
    assert {p.name for p in out.iterdir()} == {f"{n}{s}" for n in made for s in (".svg", ".csv")}
    for word in ("learning rate", "accuracy, %", "unadapted", "gaussian noise", "10⁻⁶"):
        assert word in (out / "lr.svg").read_text()
    arguments = ["figures", str(ablations), "-o", str(out), "--over", "m", "--png"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert (out / "m.png").read_bytes().startswith(b"\x89PNG")


def test_a_benchmark_without_a_grid_has_bars(bench: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["figures", str(bench), "-o", str(tmp_path / "figures")])
    assert done.exit_code == 0, done.output
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["bars.svg"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "steps"], "no finished runs differ in steps alone; `tapr ablate steps --out"),
        (["--only", "randaugment"], "differ in n and m alone; `tapr ablate randaugment"),
        (["--over", "momentum"], "differ in momentum alone; `tapr sweep SPEC --over momentum="),
        (["--only", "step"], "unknown figure 'step'; did you mean 'steps'"),
    ],
)
def test_a_figure_without_its_runs_says_what_makes_them(
    bench: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = CliRunner().invoke(app, ["figures", str(bench), "-o", str(tmp_path), *arguments])
    assert message in str(done.exception)
