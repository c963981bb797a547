"""Benchmarks: cells, records, resuming after every kind of stop, and what bad specs get."""

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import tapr
from tapr import records
from tapr.cli import app
from tapr.datasets.base import Logged
from tapr.records import BatchRecord, RunRecord
from tapr.reports import export, tables
from tapr.reports import results as reading
from tapr.runs import spec as specs
from tapr.runs import sweep
from tapr.runs.bench import Bench
from tapr.runs.store import Journal, locked

MODEL = """
import os, signal, torch
from torch import nn

class Net(nn.Sequential):
    calls = 0
    def forward(self, images):
        Net.calls += 1
        if Net.calls == int(os.environ.get("KILL_AT", -1)):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(images)

def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 6, 5, 4), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()
        return Net(*layers, nn.Linear(294, 3))
"""
COLUMNS = ["brightness", "contrast"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 24 images of 3 classes and a module with a model."""
    generator = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "photos" / f"class{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    (tmp_path / "bench_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_spec(**more: Any) -> specs.Spec:
    values = {
        "name": "tiny",
        "data": "folder:photos",
        "corruptions": COLUMNS,
        "batch_size": 10,
        "model": "bench_model:build",
        "methods": {
            "source": {"method": "source"},
            "tent": {"method": "tent"},
            "mine": {"method": "pest", "steps": 2, "augmentation": "randaugment"},
        },
    }
    return specs.make({**values, **more})


def finish(spec: specs.Spec, folder: Path) -> dict[str, RunRecord]:
    """Run what is left, and read everything."""
    bench = Bench(spec, folder)
    for cell in bench.cells:
        for _ in bench.run(cell):
            pass
    return read(bench)


def read(bench: Bench) -> dict[str, RunRecord]:
    runs = {}
    for cell in bench.cells:
        run, problems = records.read(bench.folder / cell.file)
        assert not problems
        runs[cell.file] = run
    return runs


def essence(runs: dict[str, RunRecord]) -> Any:
    """All that must not depend on when and how often a run was stopped: all but the clock."""
    return {
        name: (run.cell, [(*vars(b).values(),)[:-1] for b in run.batches], run.end is not None)
        for name, run in runs.items()
    }


def test_every_cell_has_its_record_with_the_whole_spec(place: Path) -> None:
    runs = finish(make_spec(seeds=[0, 1]), place / "out")
    assert len(runs) == 2 * 3 * 2
    for run in runs.values():
        assert run.end is not None
        assert run.end["peak_mib"] > 10
        assert run.images == 24
        assert [len(batch.predicted) for batch in run.batches] == [10, 10, 4]
        assert sorted(n for batch in run.batches for n in batch.images) == list(range(24))
        methods = {"source": "source", "tent": "tent", "mine": "pest"}
        assert run.cell["recipe"]["method"] == run.method == methods[run.label]
        assert run.cell["recipe"]["seed"] == run.cell["seed"]
        assert {"tapr", "torch", "threads", "commit", "began"} <= run.environment.keys()
    mine = next(run for run in runs.values() if run.label == "mine")
    assert mine.cell["recipe"]["lr"] == 1e-4
    assert [(b.forward, b.backward) for b in mine.batches] == [(70, 60), (70, 60), (28, 24)]
    assert [batch.steps for batch in mine.batches] == [2, 2, 2]
    assert not list((place / "out").glob("*.state"))


STREAM = {
    "protocol": "continual",
    "order": "correlated",
    "delta": 0.5,
    "burst": 2,
    "rounds": 2,
    "clean": 6,
}


def test_a_stream_with_every_parameter(place: Path) -> None:
    spec = make_spec(**STREAM, methods={"source": {}})
    bench = Bench(spec, place / "out")
    (run,) = finish(spec, place / "out").values()
    assert bench.cells[0].images == run.images == 2 * (6 + 2 * 2 * 24 + 6)
    assert {key: run.setting[key] for key in STREAM} == STREAM
    (found,) = reading.read([place / "out"]).settings
    names = ["clean before", "brightness-5", "contrast-5", "clean after"]
    assert [domain.name for domain in found.domains] == names
    made = tables.table(found)
    assert [domain.name for domain in made.averaged] == names[1:3]
    assert [cell and (cell.images, cell.finished) for cell in made.rows[0].cells] == [
        (12, True),
        (96, True),
        (96, True),
        (12, True),
    ]
    again = specs.make(tomllib.loads(export.spec(found)))
    expected = spec.model_dump() | {"images": 24, "methods": again.methods, "device": "cpu"}
    assert again.model_dump() == expected


def test_defaults_of_later_fields_leave_no_trace_in_a_run(place: Path) -> None:
    """So the files of records from before them keep their names."""
    (cell,) = Bench(make_spec(corruptions=["fog"], methods=["source"]), place).cells
    written = make_spec(corruptions=["fog"], methods=["source"], delta=0.1, rounds=1, clean=0)
    assert Bench(written, place).cells[0].file == cell.file
    assert not cell.identity["setting"].keys() & STREAM.keys() - {"protocol", "order"}
    changed = make_spec(corruptions=["fog"], methods=["source"], burst=2)
    assert Bench(changed, place).cells[0].file != cell.file


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delta": 0}, "delta in the spec: expected more than 0.0, got 0"),
        ({"shift_at": 1}, "shift_at in the spec: expected less than 1.0, got 1"),
        ({"burst": 0}, "burst in the spec: expected at least 1, got 0"),
        ({"rounds": 1.5}, "rounds in the spec: expected a whole number, got 1.5"),
        ({"clean": -1}, "clean in the spec: expected at least 0, got -1"),
        ({"delta": 0.5}, "delta belongs to the order dirichlet and correlated, got listed"),
        ({"rounds": 2}, "several rounds need one stream of all domains, got the protocol 'each'"),
        ({"clean": 25, "protocol": "mixed"}, "expected 1 to 24 images of folder:photos, got 25"),
        ({"clean": 5, "corruptions": []}, "need corruptions between them, got none"),
    ],
)
def test_streams_that_cannot_be(place: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        Bench(make_spec(**given), place / "out")
    assert not (place / "out").exists()


def test_a_run_can_be_read_from_its_first_moment(tmp_path: Path) -> None:
    path, seen = tmp_path / "run.jsonl", []

    def batches() -> Iterator[BatchRecord]:
        seen.append(records.read(path))
        yield from ()

    list(Journal(path).write({"data": "photos"}, tapr.adapt(nn.Flatten(), "source"), batches()))
    assert [(run.images, run.end, problems) for run, problems in seen] == [(0, None, [])]


def test_the_adapter_starts_each_corruption_from_the_source(place: Path) -> None:
    both = finish(make_spec(), place / "both")
    alone = finish(make_spec(corruptions=["contrast"]), place / "alone")
    assert essence(alone).items() <= essence(both).items()


def test_a_finished_cell_is_not_run_again_and_a_changed_spec_is_another_run(place: Path) -> None:
    finish(make_spec(), place / "out")
    before = {path: path.read_bytes() for path in (place / "out").glob("*.jsonl")}
    finish(make_spec(), place / "out")
    assert {path: path.read_bytes() for path in (place / "out").glob("*.jsonl")} == before
    finish(make_spec(batch_size=8), place / "out")
    assert len(list((place / "out").glob("*.jsonl"))) == 2 * len(before)


@pytest.mark.parametrize("protocol", ["continual", "mixed"])
def test_streams_of_several_domains_are_one_run(place: Path, protocol: str) -> None:
    runs = finish(make_spec(protocol=protocol), place / "out")
    assert [run.images for run in runs.values()] == [48, 48, 48]


def test_stopped_between_batches_it_goes_on_with_the_same_result(place: Path) -> None:
    whole = finish(make_spec(), place / "whole")
    for stop in (1, 2, 3, 4):
        bench = Bench(make_spec(), place / "parts")
        batches = (record for cell in bench.cells for record in bench.run(cell))
        for _ in range(stop):
            next(batches)
        batches.close()
    assert essence(finish(make_spec(), place / "parts")) == essence(whole)


def test_a_line_cut_short_by_a_crash_is_done_again(place: Path) -> None:
    whole = finish(make_spec(), place / "whole")
    bench = Bench(make_spec(), place / "parts")
    cell = bench.cells[-1]
    batches: Any = bench.run(cell)
    next(batches), next(batches)
    batches.close()
    path = place / "parts" / cell.file
    for cut in (5, 300):
        path.write_bytes(path.read_bytes()[:-cut])
        assert essence(finish(make_spec(), place / "parts")) == essence(whole)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[:2]))  # as if killed later; its state is gone by now


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on_with_the_same_result(place: Path) -> None:
    arguments = ["bench", str(place / "spec.toml"), "--out", str(place / "killed")]
    spec = make_spec().model_dump(exclude_none=True)
    methods = spec.pop("methods")
    lines = [f"{key} = {json.dumps(value)}" for key, value in spec.items()]
    for label, options in methods.items():
        lines += [f"[methods.{label}]"] + [f"{k} = {json.dumps(v)}" for k, v in options.items()]
    (place / "spec.toml").write_text("\n".join(lines))
    command = [sys.executable, "-m", "tapr.cli", *arguments]
    outcomes = []
    for moment in ("5", "11"):
        paths = os.pathsep.join([str(place), *sys.path])
        environment = {**os.environ, "KILL_AT": moment, "PYTHONPATH": paths}
        environment["OMP_NUM_THREADS"] = "1"  # as in this process: sums depend on the threads
        outcomes.append(subprocess.run(command, env=environment, capture_output=True).returncode)
    assert outcomes == [-signal.SIGKILL] * 2
    resumed, whole = (finish(make_spec(), place / name) for name in ("killed", "whole"))
    assert essence(resumed) == essence(whole)


def test_data_of_other_classes_than_the_models_are_refused(place: Path) -> None:
    (place / "photos" / "class0").rename(place / "elsewhere")
    with pytest.raises(tapr.TaprError, match="a model of 3 and data of 2: class1, class2"):
        Bench(make_spec(), place / "out")


def test_a_folder_of_some_classes_finds_the_models_outputs(
    place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for before, after in (("class0", "2"), ("class1", "0"), ("class2", "1")):
        (place / "photos" / before).rename(place / "photos" / after)
    (place / "photos" / "0").rename(place / "elsewhere")
    some = Bench(make_spec(), place / "out").cells[0].domains[0]
    assert some.classes == ("0", "1", "2")
    assert some.labels is not None
    assert set(some.labels.tolist()) == {1, 2}
    (place / "bench_model.py").write_text(MODEL.replace("294, 3", "294, 1000"))
    sys.modules.pop("bench_model", None)
    for before, after in (("1", "n01443537"), ("2", "n99999999")):
        (place / "photos" / before).rename(place / "photos" / after)
    known = Bench(make_spec(), place / "out").cells[0].domains[0]
    assert known.labels is not None
    assert set(known.labels.tolist()) == {1}
    assert len(known) == 8
    assert "no output for 1 of 2 classes, whose images are left out: n99999999" in caplog.text
    sys.modules.pop("bench_model", None)


@pytest.mark.parametrize(("data", "outputs"), [("imagenet-r", 3), ("imagenet-sketch", 1000)])
def test_sets_of_some_classes_may_restrict_the_model(
    place: Path, monkeypatch: pytest.MonkeyPatch, data: str, outputs: int
) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(place / "cache"))
    (place / "bench_model.py").write_text(MODEL.replace("294, 3", "294, 1000"))
    sys.modules.pop("bench_model", None)
    wordnet = ("n02007558", "n01440764", "n01443537")
    for before, after in zip(("class0", "class1", "class2"), wordnet, strict=True):
        (place / "photos" / before).rename(place / "photos" / after)
    tapr.datasets.DATASETS[data].get(Logged(), place / "photos")
    spec = make_spec(data=data, corruptions=[], methods=["source"], size="32")
    bench = Bench(spec, place / "out")
    (cell,) = bench.cells
    assert len(cell.identity["classes"]) == outputs
    assert cell.identity["setting"]["fit"]["size"] == [3, 32, 32]
    (run,) = finish(spec, place / "out").values()
    images = tapr.datasets.load(data, size=32).images[:8]
    whole = bench_model(place).eval()
    with torch.no_grad():
        logits = whole(torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    kept = [0, 1, 130] if outputs == 3 else list(range(1000))
    assert run.batches[0].predicted[:8] == logits[:, kept].argmax(1).tolist()
    expected = {0, 1, 2} if outputs == 3 else {0, 1, 130}
    assert {label for batch in run.batches for label in batch.labels or ()} == expected
    sys.modules.pop("bench_model", None)


def bench_model(place: Path) -> nn.Module:
    import importlib

    model: nn.Module = importlib.import_module("bench_model").build()
    return model


def test_size_crop_mean_and_std_are_flags(place: Path) -> None:
    for number, path in enumerate(sorted((place / "photos").rglob("*.png"))):
        Image.open(path).resize((40 + number, 48)).save(path)
    values = ["name", "data", "corruptions", "batch_size", "model"]
    text = [f"{key} = {json.dumps(make_spec().model_dump()[key])}" for key in values]
    (place / "spec.toml").write_text("\n".join([*text, 'methods = ["source"]']))
    base = ["bench", "spec.toml", "--quiet", "--out"]

    def told(out: str, *flags: str) -> Any:
        done = CliRunner().invoke(app, [*base, out, *flags])
        assert done.exit_code == 0, done.exception
        return records.load(place / out).runs[0].batches[0].probabilities

    with pytest.raises(tapr.TaprError, match=r"expected images of one size in .* give a size"):
        CliRunner().invoke(app, [*base, "none"], catch_exceptions=False)
    plain = told("plain", "--size", "32")
    assert (
        told("again", "--size", "3x32x32", "--crop", "1", "--mean", "0,0,0", "--std", "1") == plain
    )
    assert told("cropped", "--size", "32", "--crop", "0.8") != plain
    assert told("moved", "--size", "32", "--mean", "0.4", "--std", "0.2,0.2,0.3") != plain
    with pytest.raises(tapr.TaprError, match="expected --mean as numbers, got 'grey'"):
        CliRunner().invoke(app, [*base, "none", "--mean", "grey"], catch_exceptions=False)
    with pytest.raises(tapr.TaprError, match="expected mean and deviation"):
        CliRunner().invoke(app, [*base, "none", "--mean", "0.4"], catch_exceptions=False)


def test_two_at_once_in_one_folder_are_refused(place: Path) -> None:
    with (
        locked(place / "out"),
        pytest.raises(tapr.TaprError, match="another tapr is writing"),
        locked(place / "out"),
    ):
        pass


def test_a_folder_that_cannot_be_written_is_said(place: Path) -> None:
    (place / "file").write_text("in the way")
    with pytest.raises(tapr.TaprError, match="cannot write into"), locked(place / "file" / "out"):
        pass


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batchsize": 3}, "unknown key 'batchsize' in the spec; did you mean 'batch_size'"),
        ({"batch_size": 0}, "batch_size in the spec: expected at least 1, got 0"),
        ({"images": 0}, "images in the spec: expected at least 1, got 0"),
        ({"severities": [6]}, "severities in the spec: expected at most 5, got 6"),
        ({"corruptions": ["fgo"]}, "corruptions in the spec: unknown corruption 'fgo'; did you m"),
        ({"methods": ["tnet"]}, "methods in the spec: unknown method 'tnet'; did you mean 'tent'"),
        ({"methods": {"a": {"method": "pest", "step": 1}}}, "unknown option 'step' of method 'pe"),
        ({"methods": []}, "expected at least one method, got none"),
        ({"protocol": "eech"}, "unknown protocol 'eech'; did you mean 'each'"),
        ({"order": "sort"}, "unknown order 'sort'; did you mean 'sorted'"),
    ],
)
def test_bad_specs_get_a_sentence(change: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        make_spec(**change)


def test_ready_made_specs_are_sound_and_the_papers_protocol_is_one() -> None:
    for name in specs.READY:
        values = specs.values(name)
        over = values.pop("over", {})
        assert all(spec.about for spec in sweep.expand(values, over))
    paper = specs.load("paper-cifar10c", {})
    assert (paper.batch_size, paper.severities, paper.images) == (200, (5,), None)
    assert (len(paper.corruptions), paper.protocol, len(paper.methods)) == (15, "each", 6)
    assert paper.methods["pest-control"]["lr"] == 0
    with pytest.raises(tapr.TaprError, match="unknown spec 'cifar10'; did you mean 'cifar10c'"):
        specs.load("cifar10", {})


def test_the_command_shows_lines_json_or_nothing(place: Path) -> None:
    arguments = ["--data", "folder:photos", "--model", "bench_model:build", "--images", "12"]
    arguments += ["--corruptions", "contrast", "--severity", "3", "--batch-size", "6"]
    arguments += ["--methods", "source,norm", "--out", "out"]
    run = CliRunner().invoke
    done = run(app, ["bench", "cifar10c", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["method"] for line in lines] == ["source", "norm"]
    assert all(line["domain"] == "contrast-3" and line["images"] == 12 for line in lines)
    again = run(app, ["bench", "cifar10c", *arguments])
    assert f"{lines[0]['accuracy']:.2f}" in again.stdout
    assert "class mean" in again.stdout
    assert "mean of" not in again.stdout
    assert run(app, ["bench", "cifar10c", *arguments, "--quiet"]).output == ""
    refused = run(app, ["bench", "cifar10c", *arguments, "--no-resume"])
    assert "already holds records" in str(refused.exception)


def test_a_corrupt_line_is_named_and_the_rest_is_read(place: Path) -> None:
    bench = Bench(make_spec(), place / "out")
    finish(make_spec(), place / "out")
    path = place / "out" / bench.cells[0].file
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "{broken", *lines[2:], '{"kind":"batch","number":1}']))
    run, problems = records.read(path)
    assert len(run.batches) == 2
    assert len(problems) == 2
    assert "line 2: not JSON" in problems[0]
    assert "line 6: not a record" in problems[1]


def test_images_that_show_nothing_count_for_nothing(place: Path) -> None:
    made = make_spec(protocol="continual", blank="black", methods=["source", "norm"])
    runs = finish(made, place / "out")
    for run in runs.values():
        labels = [batch.labels for batch in run.batches]
        assert labels[:4] == [None] * 4
        assert [batch.domain for batch in run.batches[3:5]] == ["black", "brightness-5"]
        assert run.accuracy is not None
    (setting,) = reading.read([place / "out"]).settings
    table = tables.table(setting)
    assert [domain.corruption for domain in table.domains] == COLUMNS
    assert all(row.mean for row in table.rows)
    again = tomllib.loads(export.spec(setting))
    assert (again["blank"], again["corruptions"]) == ("black", COLUMNS)


def test_one_class_alone_and_clean_beside_corrupted(place: Path) -> None:
    made = make_spec(
        corruptions=["contrast", "clean"],
        protocol="mixed",
        only_class=1,
        images=6,
        methods=["norm"],
    )
    (run,) = finish(made, place / "out").values()
    assert {label for batch in run.batches for label in batch.labels or ()} == {1}
    assert run.images == 12
    (setting,) = reading.read([place / "out"]).settings
    assert tomllib.loads(export.spec(setting))["corruptions"] == ["contrast", "clean"]
    with pytest.raises(tapr.TaprError, match="expected 9 images of class 1"):
        Bench(make_spec(only_class=1, images=9), place / "out")
    with pytest.raises(tapr.TaprError, match="unknown kind of blank images 'blakc'"):
        make_spec(blank="blakc")
