"""Files of runs: what is written is read again, old files too, and damage is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapr import records
from tapr.errors import DataError
from tapr.records import BatchRecord, RunRecord, Shift
from tapr.reports import results
from tapr.reports.tables import table

Make = Callable[..., RunRecord]
Save = Callable[[RunRecord, Path], Path]
OLD = Path(__file__).parents[1] / "fixtures"


def test_what_is_written_is_read_again(make_run: Make, save_run: Save, tmp_path: Path) -> None:
    run = make_run("pest-augmix", ["fog-5", "clean"], protocol="continual")
    again, problems = records.read(save_run(run, tmp_path))
    assert problems == []
    assert again == run
    assert again.setting["model_hash"] == "00"  # and every other key
    assert again.shifts == [Shift("fog-5", "fog", 5), Shift("clean")]


def test_a_field_that_a_file_lacks_has_its_default_and_one_too_many_is_ignored(
    make_run: Make, save_run: Save, tmp_path: Path
) -> None:
    path = save_run(make_run("tent"), tmp_path)
    first = path.read_text().splitlines()[0]
    batch = {"kind": "batch", "number": 0, "images": [3], "predicted": [1], "of tomorrow": 5}
    path.write_text(f"{first}\n{json.dumps(batch)}\n")
    run, problems = records.read(path)
    assert (run.batches, problems) == ([BatchRecord(images=[3], predicted=[1])], [])


def test_a_file_of_the_first_format_is_read_as_the_present_one() -> None:
    run, problems = records.read(OLD / "run-1.jsonl")
    assert problems == []
    assert (run.label, run.method, run.adapts, run.seed) == ("pest-augmix", "pest", True, 0)
    assert run.cell["statistics"] == "running, fed by views"
    assert run.cell["origin"] == {"dataset": "digits:test", "made": "generated", "seed": 0}
    assert run.setting["origin"] == {"dataset": "digits:test", "made": "generated"}
    assert (run.setting["data"], run.setting["severities"]) == ("digits", [3])
    assert run.shifts == [run.batches[0].shift] == [Shift("fog-3", "fog", 3)]
    assert (run.images, run.accuracy) == (100, 0.49)
    assert not records.read(OLD / "run-1-source.jsonl")[0].adapts


def test_files_of_the_first_format_are_reported() -> None:
    found = results.read([OLD])
    assert found.problems == []
    (setting,) = found.settings
    shown = table(setting)
    assert [row.look.title for row in shown.rows] == ["unadapted", "PEST AugMix"]
    assert [row.mean.value for row in shown.rows if row.mean] == [0.48, 0.49]
    assert shown.baseline is shown.rows[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cifar10c, read from files", {"dataset": "cifar10c", "made": "published", "seed": None}),
        ("cifar10", {"dataset": "cifar10", "made": "clean", "seed": None}),
        ("a, b, generated with seed 12", {"dataset": "a, b", "made": "generated", "seed": 12}),
        ("", {"dataset": "", "made": "clean", "seed": None}),
    ],
)
def test_origins_of_the_first_format(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    first, *rest = (OLD / "run-1.jsonl").read_text().splitlines()
    content = json.loads(first)
    content["cell"]["origin"] = text
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(content), *rest]))
    assert records.read(tmp_path / "a.jsonl")[0].cell["origin"] == expected


def test_an_own_method_of_the_first_format_claims_no_statistics(tmp_path: Path) -> None:
    first, *rest = (OLD / "run-1.jsonl").read_text().splitlines()
    content = json.loads(first)
    content["cell"] |= {"method": "mine:ETA", "recipe": {"method": "mine:ETA", "margin": 0.4}}
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(content), *rest]))
    assert records.read(tmp_path / "a.jsonl")[0].cell["statistics"] == "not recorded"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"number": "first"}, "number: expected a whole number, got 'first'"),
        ({"images": 7}, "images: Input should be a valid list, got 7"),
        ({"labels": [0, None]}, "labels.1: expected a whole number, got None"),
        ({"predicted": [1, 2]}, "expected one value of each kind for every image, got 100 ima"),
        ({"predicted": []}, "expected one value of each kind for every image, got 100 images,"),
        ({"labels": [-1] * 100}, "labels.0: expected at least 0, got -1"),
        ({"images": [2**70]}, "images.0: expected less than 9223372036854775808, got 11805916"),
        ({"terms": {"entropy": "low"}}, "terms.entropy: expected a number, got 'low'"),
        ({"probabilities": [0.5]}, "probabilities.0: Input should be a valid list, got 0.5"),
        ({"domain": 5}, "domain: expected a text, got 5"),
        ({"seconds": None}, "seconds: expected a number, got None"),
        ({"kind": "batsh"}, "unknown kind 'batsh'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("old", [False, True], ids=["present", "first"])
def test_a_mistyped_field_of_a_batch_is_a_problem(
    change: dict[str, Any], problem: str, old: bool, make_run: Make, save_run: Save, tmp_path: Path
) -> None:
    path = save_run(make_run("tent", images=200), tmp_path)
    lines = path.read_text().splitlines()
    if old:
        lines[0] = (OLD / "run-1.jsonl").read_text().splitlines()[0]
    lines[1] = json.dumps({**json.loads(lines[1]), **change})
    path.write_text("\n".join(lines))
    run, (found,) = records.read(path)
    assert found.startswith(f"{path}, line 2: not a record of a run: {problem}")
    assert [batch.number for batch in run.batches] == [1]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", "zero"),
        ("domains", ["fog-5"]),
        ("domains", 3),
        ("setting", []),
        ("setting", {"images": "many"}),
        ("setting", {"severities": 5}),
        ("setting", {"origin": "cifar10"}),
        ("recipe", {"augmentation_options": [1]}),
        ("recipe", "tent"),
        ("adapts", "perhaps"),
        ("origin", "cifar10"),
        ("label", 5),
        ("classes", None),
    ],
)
def test_a_run_with_a_mistyped_fact_is_listed_beside_the_others(
    key: str, value: object, make_run: Make, save_run: Save, tmp_path: Path
) -> None:
    save_run(make_run("tent"), tmp_path)
    run = make_run("norm")
    path = save_run(run, tmp_path)
    _, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(records.begin({**run.cell, key: value}, {}) + "".join(rest))
    with pytest.raises(DataError, match=f"expected the record of a run.*line 1: .*{key}"):
        records.read(path)
    found = results.read([tmp_path])
    assert [system.label for system in found.settings[0].systems] == ["tent"]
    (problem,) = found.problems
    assert str(path) in problem


@pytest.mark.parametrize("line", ["[]", "3", "null", '"text"', "{}"])
def test_lines_that_are_no_tables_are_problems(
    line: str, make_run: Make, save_run: Save, tmp_path: Path
) -> None:
    path = save_run(make_run("tent"), tmp_path)
    path.write_text(path.read_text() + line)
    run, (problem,) = records.read(path)
    assert "line 7: not a record of a run" in problem
    assert run.end is not None


def test_a_format_of_tomorrow_is_refused(make_run: Make, save_run: Save, tmp_path: Path) -> None:
    path = save_run(make_run("tent"), tmp_path)
    path.write_text(path.read_text().replace(records.FORMAT, "tapr-run-9"))
    with pytest.raises(DataError, match="expected format tapr-run-2, got 'tapr-run-9'"):
        records.read(path)
