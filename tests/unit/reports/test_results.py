"""Reading and sorting records: settings apart, one run of each thing, bad lines named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tapr import corruptions, names
from tapr.errors import DataError
from tapr.records import RunRecord, Shift
from tapr.reports import results

Make = Callable[..., RunRecord]
Save = Callable[[RunRecord, Path], Path]


def test_the_standard_corruptions_are_those_of_the_corruptions() -> None:
    assert tuple(names.STANDARD) == corruptions.STANDARD
    assert tuple(names.EXTRA) == corruptions.EXTRA


def test_a_bench_is_one_setting(bench: Path) -> None:
    found = results.read([bench])
    assert not found.problems
    (setting,) = found.settings
    assert [system.label for system in setting.systems] == [
        *("source", "norm", "tent", "pest-randaugment", "pest-augmix", "pest-control")
    ]
    found_domains = [str(domain) for domain in setting.domains]
    assert found_domains == ["gaussian_noise-5", "defocus_blur-5", "fog-5", "contrast-5"]
    assert setting.severity == 5


@pytest.mark.parametrize(
    "changed",
    [
        {"data": "cifar100c"},
        {"origin": {"dataset": "cifar10c", "made": "published", "seed": None}},
        {"images": 300},
        {"protocol": "continual"},
        {"order": "shuffled"},
        {"batch_size": 50},
        {"model": "other"},
        {"model_hash": "ff"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_different_settings_are_apart(make_run: Make, changed: dict[str, object]) -> None:
    settings = results.gather([make_run("tent"), make_run("tent", **changed)], [])
    assert [len(setting.runs) for setting in settings] == [1, 1]


def test_severities_are_apart_and_the_seed_of_the_corruptions_is_not(make_run: Make) -> None:
    runs = [make_run("tent", ["fog-3"]), make_run("tent", ["fog-5"])]
    assert [setting.severity for setting in results.gather(runs, [])] == [3, 5]
    origins = [{"dataset": "cifar10", "made": "generated", "seed": seed} for seed in (0, 1)]
    runs = [make_run("tent", seed=origin["seed"], origin=origin) for origin in origins]
    (setting,) = results.gather(runs, [])
    assert setting.systems[0].seeds == [0, 1]


def test_one_label_with_different_options_is_two_systems(make_run: Make) -> None:
    options = {"method": "tent", "statistics": "batch"}
    runs = [make_run("tent", recipe={**options, "lr": lr}) for lr in (0.001, 0.01)]
    (setting,) = results.gather(runs, [])
    assert [system.name for system in setting.systems] == ["tent (lr=0.001)", "tent (lr=0.01)"]


def test_of_two_runs_of_the_same_thing_the_longer_is_kept(make_run: Make) -> None:
    run = make_run("tent")
    cut = RunRecord(run.cell, run.environment, run.batches[:2], None)
    problems: list[str] = []
    (setting,) = results.gather([cut, run, cut], problems)
    assert setting.runs == [run]
    assert problems == ["two runs of tent on fog-5 with seed 0: the longer is shown"] * 2


@pytest.mark.parametrize(
    ("method", "policy"),
    [("source", "source"), ("tent", "batch"), ("pest-augmix", "running, fed by views")],
)
def test_the_statistics_are_the_records(make_run: Make, method: str, policy: str) -> None:
    (setting,) = results.gather([make_run(method)], [])
    assert setting.systems[0].statistics == policy


def test_cut_short(make_run: Make) -> None:
    run = make_run("tent")
    assert results.whole(run)
    assert not results.whole(RunRecord(run.cell, run.environment, run.batches, None))
    gap = RunRecord(run.cell, run.environment, [*run.batches[:1], *run.batches[2:]], run.end)
    assert not results.whole(gap)
    last = RunRecord(run.cell, run.environment, run.batches[:-1], run.end)
    assert not results.whole(last)


def test_a_finished_domain_of_an_unfinished_stream(make_run: Make) -> None:
    run = make_run("tent", ["fog-5", "snow-5"], protocol="continual")
    cut = RunRecord(run.cell, run.environment, run.batches[:5], None)
    (setting,) = results.gather([cut], [])
    outcomes = setting.systems[0].outcomes
    assert outcomes[Shift("fog-5", "fog", 5), 0].finished
    assert not outcomes[Shift("snow-5", "snow", 5), 0].finished


def test_a_bad_line_is_named_and_the_rest_is_read(bench: Path) -> None:
    path = sorted(bench.glob("*.jsonl"))[0]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], '{"kind":"batch","numb', "\n", *lines[3:]]))
    found = results.read([bench])
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{path}, line 3: not JSON")
    assert sum(len(run.batches) for run in found.settings[0].runs) == 6 * 4 * 4 - 1


def test_a_file_that_is_no_run_is_a_problem_beside_others(bench: Path) -> None:
    (bench / "note.jsonl").write_text("{}\n")
    assert len(results.read([bench]).problems) == 1


def test_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        results.read([tmp_path / "nowhere"])
    with pytest.raises(DataError, match=r"no \.jsonl file"):
        results.read([tmp_path])
    (tmp_path / "a.jsonl").write_text("nonsense\n")
    with pytest.raises(DataError, match="no run that can be read"):
        results.read([tmp_path])


def test_a_file_given_twice_is_read_once(bench: Path) -> None:
    assert not results.read([bench, sorted(bench.glob("*.jsonl"))[0]]).problems
