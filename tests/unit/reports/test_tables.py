"""Accuracies, means, intervals and costs."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tapr import names
from tapr.records import RunRecord, Shift
from tapr.reports import results
from tapr.reports.statistics import over_seeds
from tapr.reports.tables import Table, by_class, cost, estimate, table

Make = Callable[..., RunRecord]


def of(runs: list[RunRecord]) -> Table:
    (setting,) = results.gather(runs, [])
    return table(setting)


def test_cells_are_the_runs_accuracies(bench: Path) -> None:
    (setting,) = results.read([bench]).settings
    found = table(setting)
    for row in found.rows:
        accuracies = {run.shifts[0]: run.accuracy for run in row.system.runs}
        values = [cell.value for cell in row.cells if cell]
        assert values == pytest.approx([accuracies[domain] for domain in found.domains])
        assert row.mean
        assert row.mean.value == pytest.approx(np.mean(values))
        assert row.mean.interval.low < row.mean.value < row.mean.interval.high
        assert row.mean.over == "images"
    assert found.mean_title == "mean of 4"
    assert found.best(None) == max(row.mean.value for row in found.rows if row.mean)


def test_the_mean_is_over_the_fifteen_when_all_are_there(make_run: Make) -> None:
    domains = [f"{name}-5" for name in [*names.STANDARD, "spatter"]]
    found = of([make_run("tent", [domain], images=100) for domain in reversed(domains)])
    assert [str(domain) for domain in found.domains] == domains
    assert found.mean_title == "mean of 15"
    (row,) = found.rows
    assert row.mean
    assert row.mean.value == pytest.approx(np.mean([c.value for c in row.cells[:15] if c]))


def test_two_seeds_give_students_interval(make_run: Make) -> None:
    runs = [make_run("tent", [d], seed=seed) for d in ("fog-5", "snow-5") for seed in (0, 1, 2)]
    (row,) = of(runs).rows
    assert row.mean
    assert row.mean.over == "seeds"
    means = [np.mean([r.accuracy for r in runs if r.cell["seed"] == seed]) for seed in (0, 1, 2)]
    assert row.mean.interval == pytest.approx(over_seeds([float(mean) for mean in means]))
    assert row.mean.seeds == 3


def test_seeds_that_change_nothing_leave_the_interval_to_the_images(make_run: Make) -> None:
    run = make_run("source")
    again = RunRecord({**run.cell, "seed": 1}, run.environment, run.batches, run.end)
    (row,) = of([run, again]).rows
    assert row.mean
    assert (row.mean.over, row.mean.seeds) == ("images", 2)
    assert row.mean.interval.low < row.mean.value < row.mean.interval.high


def test_pictures_are_drawn_with_all_their_corruptions(make_run: Make) -> None:
    """Five copies of one domain are no more certain than one."""
    one = make_run("tent")
    batches = one.batches
    runs = [one]
    for name in ("snow", "frost", "contrast"):
        facts = {"corruption": name, "severity": 5}
        copies = [b.__class__(**{**vars(b), "domain": f"{name}-5", **facts}) for b in batches]
        cell = {**one.cell, "domains": [{"name": f"{name}-5", **facts}]}
        runs.append(RunRecord(cell, one.environment, copies, one.end))
    (row,) = of(runs).rows
    assert row.mean
    assert row.cells[0]
    assert row.mean.interval == pytest.approx(row.cells[0].interval)


def test_unfinished_is_marked_and_has_no_mean(make_run: Make) -> None:
    run = make_run("tent", ["snow-5"])
    cut = RunRecord(run.cell, run.environment, run.batches[:1], None)
    found = of([make_run("tent"), cut, make_run("norm")])
    norm, tent = found.rows
    assert norm.cells[0] is None  # snow was not begun
    assert norm.mean is None
    assert tent.cells[0]
    assert not tent.cells[0].finished
    assert tent.mean is None
    assert found.best(0) is None


def test_without_labels_there_is_no_accuracy(make_run: Make) -> None:
    run = make_run("tent")
    batches = [b.__class__(**{**b.__dict__, "labels": None}) for b in run.batches]
    (row,) = of([RunRecord(run.cell, run.environment, batches, run.end)]).rows
    assert row.cells == [None]
    assert cost(row.system)


def test_estimate_needs_every_domain(make_run: Make) -> None:
    (setting,) = results.gather([make_run("tent")], [])
    fog, snow = Shift("fog-5", "fog", 5), Shift("snow-5", "snow", 5)
    assert estimate(setting.systems[0], [fog])
    assert estimate(setting.systems[0], [fog, snow]) is None
    assert estimate(setting.systems[0], []) is None


def test_cost(make_run: Make) -> None:
    (setting,) = results.gather([make_run("pest-augmix")], [])
    found = cost(setting.systems[0])
    assert found
    assert (found.forward, found.backward) == (7, 4)
    assert found.speed == pytest.approx(1 / 0.009)
    assert (found.peak, found.steps, found.refused, found.kept) == (410.5, 8, 0, 1.0)


def test_the_papers_numbers_stand_beside_their_methods(bench: Path) -> None:
    (setting,) = results.read([bench]).settings
    published = {row.system.label: row.paper for row in table(setting).rows}
    assert published["source"] == 0.565
    assert published["pest-augmix"] == 0.812
    assert published["norm"] is None


def test_by_class_against_a_plain_count(bench: Path) -> None:
    (setting,) = results.read([bench]).settings
    found = by_class(table(setting))
    assert found.classes == list(range(10))
    system = next(system for system in setting.systems if system.method == "tent")
    outcomes = system.outcomes.values()
    labels = np.concatenate([o.labels for o in outcomes if o.labels is not None])
    right = np.concatenate([o.correct for o in outcomes if o.correct is not None])
    expected = {number: right[labels == number].mean() for number in range(10)}
    assert found.rows["tent"] == pytest.approx(expected)
    assert found.best(3) == max(row[3] for row in found.rows.values())


def test_a_picture_that_comes_often_counts_as_one_in_the_interval(make_run: Make) -> None:
    once = make_run("tent", images=200)
    often = dataclasses.replace(
        once,
        batches=[
            dataclasses.replace(batch, number=number + visit * len(once.batches))
            for visit in range(4)
            for number, batch in enumerate(once.batches)
        ],
    )
    one, four = (of([run]).rows[0].cells[0] for run in (once, often))
    assert one
    assert four
    assert (four.images, four.value, four.interval) == (4 * one.images, one.value, one.interval)
