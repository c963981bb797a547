"""Sweeps: grids, parallel equals serial, and what a kill, a crash or Ctrl-C leaves behind."""

import json
import os
import random
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import tapr
from tapr import names, records
from tapr.cli import app
from tapr.runs import on_ray, parallel, sweep
from tapr.runs import spec as specs
from tapr.runs.bench import Bench
from tapr.runs.parallel import Event

MODEL = """
import os, signal, sys, time, torch
from multiprocessing import parent_process
from pathlib import Path
from torch import nn

WORKER = parent_process() or sys.argv[0].endswith("default_worker.py")  # the latter is Ray's

class Net(nn.Sequential):
    def forward(self, images):
        time.sleep(float(os.environ.get("SLOWLY", 0)))
        for trouble in sorted(Path().glob("trouble*")) if WORKER else ():
            trouble.unlink()
            if trouble.name.endswith("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("no such thing")
        return super().forward(images)

def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 6, 5, 4), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()
        return Net(*layers, nn.Linear(294, 3))
"""
SPEC = """
data = "folder:photos"
corruptions = ["brightness", "contrast"]
batch_size = 10
model = "sweep_model:build"

[methods.source]
method = "source"

[methods.mine]
method = "pest"
steps = 2
augmentation = "randaugment"

[over]
lr = [0.001, 0.1]
"""
VALUES = {"name": "tiny", **tomllib.loads(SPEC)}
OVER = VALUES.pop("over")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 24 images of 3 classes, a module with a model, and a spec."""
    generator = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "photos" / f"class{number % 3}" / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        blocks = generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(blocks.repeat(2, 0).repeat(2, 1)).save(path)
    (tmp_path / "sweep_model.py").write_text(MODEL)
    (tmp_path / "tiny.toml").write_text(SPEC)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def serial(folder: Path) -> None:
    """The benchmarks of the sweep, one after another in this process."""
    for spec in sweep.expand(VALUES, OVER):
        bench = Bench(spec, folder)
        for cell in bench.cells:
            list(bench.run(cell))


def run(folder: Path, jobs: int) -> list[Event]:
    tasks = sweep.tasks(sweep.expand(VALUES, OVER), OVER, folder)
    return list(parallel.run(tasks, folder, jobs))


def essence(folder: Path) -> Any:
    """All that must not depend on when, where and how often a sweep ran: all but the clock."""
    found = {}
    for path in folder.glob("*.jsonl"):
        record, problems = records.read(path)
        assert not problems
        batches = [(*vars(batch).values(),)[:-1] for batch in record.batches]
        found[path.name] = (record.cell, batches, record.end is not None)
    return found


def cells(made: Sequence[specs.Spec], over: sweep.Over, folder: Path) -> list[str]:
    return [f"{cell.column} {cell.title}" for _, cell in sweep.tasks(made, over, folder)]


def test_a_method_takes_the_keys_it_knows_and_runs_once_without(place: Path) -> None:
    over = {"m": [1, 5], "batch_size": [4, 8]}
    made = sweep.expand({**VALUES, "corruptions": ["contrast"]}, over)
    assert [spec.batch_size for spec in made] == [4, 8, 4, 8]
    assert made[2].methods["mine"]["augmentation_options"] == {"m": 5}
    assert made[2].methods["source"] == {"method": "source"}
    assert cells(made, over, place / "out") == [
        "contrast-5 source batch_size=4",
        "contrast-5 mine m=1, batch_size=4",
        "contrast-5 source batch_size=8",
        "contrast-5 mine m=1, batch_size=8",
        "contrast-5 mine m=5, batch_size=4",
        "contrast-5 mine m=5, batch_size=8",
    ]


def test_a_table_sets_several_things_at_once(place: Path) -> None:
    over: dict[str, list[Any]] = {
        "stream": [{"protocol": "mixed", "order": "sorted"}, {"protocol": "continual"}],
        "size": [{"batch_size": 4, "mine.steps": 1, "other.steps": 7}, {"severities": [1, 2]}],
    }
    made = sweep.expand(VALUES, over)
    found = [(s.protocol, s.order, s.batch_size, s.severities) for s in made]
    assert found == [
        ("mixed", "sorted", 4, (5,)),
        ("mixed", "sorted", 10, (1, 2)),
        ("continual", None, 4, (5,)),
        ("continual", None, 10, (1, 2)),
    ]
    assert [spec.methods["mine"]["steps"] for spec in made] == [1, 2, 1, 2]
    assert cells(made, over, place / "out")[:3] == [
        "mixed source mixed, sorted, 4",
        "mixed mine mixed, sorted, 4",
        "mixed source mixed, sorted, 10",
    ]


def test_methods_whose_augmentation_has_no_preset_can_be_swept() -> None:
    made = sweep.expand({**VALUES, "methods": ["cotta", "source"]}, {"lr": [0.1, 0.2]})
    assert [spec.methods["cotta"]["lr"] for spec in made] == [0.1, 0.2]


def test_the_leaderboard_is_every_method_on_every_stream_with_every_model() -> None:
    sizes = {}
    for size in (None, "medium", "small"):
        values = specs.values("leaderboard", size=size)
        made = sweep.expand(values, values.pop("over"))
        sizes[size] = made
        assert len(made) == 2 * 7
        assert {spec.model for spec in made} == {"cifar10-small", "cifar100-small"}
        for spec in made:
            assert spec.methods["eata"]["source_images"] == spec.data.removesuffix("c")
    assert {*names.METHODS} - {*sizes[None][0].methods} == {
        "ttt",  # needs a rotation head
        "foa",  # needs a transformer
    }
    left_out = {
        size: {*sizes[None][0].methods} - {*made[0].methods} for size, made in sizes.items()
    }
    assert left_out == {None: set(), "medium": {"pest", "cotta", "memo"}, "small": {"memo"}}
    assert {spec.images for spec in sizes[None]} == {2000}
    with pytest.raises(tapr.TaprError, match="unknown size of leaderboard 'smal'; did you mean"):
        specs.values("leaderboard", size="smal")
    with pytest.raises(tapr.TaprError, match="demo has no sizes, got --size small"):
        specs.values("demo", size="small")


def test_the_streams_of_harm_are_for_every_method_with_its_guard_off_and_acting() -> None:
    values = specs.values("harm")
    made = sweep.expand(values, values.pop("over"))
    assert len(made) == 2 * 2 * 14
    assert {spec.methods["tent"]["guard"] for spec in made} == {"off", "act"}
    assert {spec.blank for spec in made} == {None, *names.BLANKS}
    missing = {*names.METHODS} - {table["method"] for table in made[0].methods.values()}
    assert missing == {"ttt", "foa"}  # which need a rotation head, and a transformer
    for label, table in made[0].methods.items():
        _, _, times = label.partition("-x")
        if times:
            rate = tapr.presets(table["method"])["paper"]["lr"]
            assert table["lr"] == pytest.approx(int(times) * rate)
    slow = specs.values("harm", size="slow")
    assert len(sweep.expand(slow, slow.pop("over"))) == 2 * 3


def test_the_unadapted_model_runs_once_whatever_the_guard(place: Path) -> None:
    over = {"guard": ["off", "act"]}
    made = sweep.expand({**VALUES, "methods": ["source", "norm"]}, over)
    labels = [task.cell.label for task in sweep.tasks(made, over, place / "out")]
    assert 2 * labels.count("source") == labels.count("norm")


def test_bench_runs_a_spec_with_a_grid(place: Path) -> None:
    streams = "".join(f'[[over.stream]]\nprotocol = "{name}"\n' for name in ("mixed", "continual"))
    text = SPEC.partition("[over]")[0] + streams
    (place / "grid.toml").write_text(text + '[sizes.tiny]\nimages = 6\nmethods = ["source"]\n')
    command = ["bench", "grid.toml", "--size", "tiny", "--out", "out", "--json"]
    done = CliRunner().invoke(app, command, catch_exceptions=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["domain"]: line["images"] for line in lines} == {"mixed": 12, "continual": 12}
    done = CliRunner().invoke(app, [*command, "--log", "tensorboard"])
    assert "--log is for one stream at a time" in str(done.exception)


def test_without_a_grid_a_sweep_is_the_benchmark(place: Path) -> None:
    assert sweep.expand(VALUES, {}) == [specs.make(VALUES)]


def test_two_sweeps_share_the_cells_they_have_in_common(place: Path) -> None:
    files = [
        {task.cell.file for task in sweep.tasks(sweep.expand(VALUES, over), over, place)}
        for over in ({"lr": [1e-4, 1e-2]}, {"steps": [1, 2]})
    ]
    assert len(files[0] & files[1]) == 4  # on two corruptions: source, and mine as it is


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=1e-4, 0.1", [1e-4, 0.1]),
        ("steps=1,2", [1, 2]),
        ("redraw=true,False", [True, False]),
        ("statistics=batch,blend", ["batch", "blend"]),
        ("max_grad_norm=none,1.5", [None, 1.5]),
    ],
)
def test_values_on_the_command_line(text: str, values: list[Any]) -> None:
    assert list(sweep.parse([text]).values()) == [values]


@pytest.mark.parametrize("text", ["lr", "lr=", "=1", "lr=,"])
def test_a_grid_without_values_is_refused(text: str) -> None:
    with pytest.raises(tapr.TaprError, match="expected --over key=a,b,c, got"):
        sweep.parse([text])


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"stesp": [1]}, "unknown key 'stesp' to sweep over; did you mean 'steps'"),
        ({"severitys": [1]}, "unknown key 'severitys'"),
        ({"lr": []}, "expected lr over a list of values, got \\[\\]"),
        ({"lr": 0.1}, "expected lr over a list of values, got 0.1"),
        ({"lr": ["fast"]}, "expected lr of at least 0 and below inf, got 'fast'"),
        ({"batch_size": [0]}, "batch_size in the spec: .*got 0"),
        ({"seed": [1]}, "unknown key 'seed'"),
        ({"stream": [{"protocl": "mixed"}]}, "unknown key 'protocl' in stream; did you mean 'pro"),
        ({"stream": [{"methods": ["tent"]}]}, "unknown key 'methods' in stream"),
        ({"stream": [{"protocol": "mixd"}]}, "unknown protocol 'mixd'; did you mean 'mixed'"),
        ({"stream": [{"mine.stesp": 1}]}, "unknown option 'stesp' of method 'mine'"),
    ],
)
def test_a_bad_grid_gets_a_sentence(over: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        sweep.expand(VALUES, over)


def test_a_bench_of_a_spec_with_a_grid_says_who_runs_it(place: Path) -> None:
    with pytest.raises(tapr.TaprError, match="tapr sweep runs it"):
        specs.load("tiny.toml", {})


def test_the_papers_grids_are_sound() -> None:
    points = {}
    for name in sweep.ABLATIONS:
        values = specs.values(name, sweep.ABLATIONS)
        points[name] = len(sweep.expand(values, values.pop("over", {})))
        assert "source" in values["methods"]
        assert (values["name"], values["images"]) == ("ablation", 2000)
    assert points == {
        "steps": 10,
        "lr": 6,
        "batch-size": 30,
        "loss": 1,
        "randaugment": 9,
        "augmix": 12,
    }


def test_parallel_equals_serial_and_what_fails_stops_nothing_else(place: Path) -> None:
    (place / "trouble-1-kill").touch()
    (place / "trouble-2-raise").touch()
    troubled = run(place / "parallel", 2)
    failed = sorted(str(event.detail) for event in troubled if event.kind == "failed")
    assert failed == ["RuntimeError: no such thing", "its process died, killed by signal 9"]
    assert [event.kind for event in troubled].count("done") == 4
    assert len([p for p in (place / "parallel").glob("*.jsonl") if records.read(p)[0].end]) == 4
    serial(place / "parallel")  # what failed
    serial(place / "serial")
    assert essence(place / "parallel") == essence(place / "serial")
    assert len(essence(place / "serial")) == 6
    threads = {records.read(p)[0].environment["threads"] for p in place.glob("*/*.jsonl")}
    assert threads == {1}


def started(out: str, *flags: str, **environment: str) -> subprocess.Popen[str]:
    paths = os.pathsep.join([os.getcwd(), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "tapr.cli", "sweep", "tiny.toml", "--out", out, *flags],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Whoever runs the tests in the background of a script has told them to ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def batches(folder: Path) -> int:
    return sum(path.read_bytes().count(b'"batch"') for path in folder.glob("*.jsonl"))


def until_batches(folder: Path, count: int) -> None:
    """Wait until so many batches are written."""
    deadline = time.monotonic() + 300
    while batches(folder) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="POSIX signals")
def test_killed_and_interrupted_it_goes_on_with_the_same_result(place: Path) -> None:
    first = started("out", "--jobs", "2", SLOWLY="0.3")
    until_batches(place / "out", random.randint(1, 4))
    time.sleep(random.random() / 2)
    os.kill(first.pid, signal.SIGKILL)  # the parent alone: its processes have to notice
    first.communicate()  # ends when all who hold its output have ended
    assert batches(place / "out") < 16  # of 18: there is something left to interrupt

    second = started("out", "--jobs", "1", SLOWLY="0.2")
    until_batches(place / "out", batches(place / "out") + 1)
    os.killpg(second.pid, signal.SIGINT)  # as a terminal does at Ctrl-C
    _, errors = second.communicate()
    assert (second.returncode, errors) == (
        130,
        "stopped; the same command resumes where this one stopped\n",
    )

    serial(place / "out")  # what is left
    serial(place / "whole")
    assert essence(place / "out") == essence(place / "whole")


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.skipif(
    find_spec("ray") is None, reason="ray is not installed: pip install 'torch-tapr[ray]'"
)
def test_on_ray_the_records_are_the_same_though_workers_die(place: Path) -> None:
    """Two workers die in the middle of a cell, a cell raises, and one was begun by a process."""
    spec = sweep.expand(VALUES, OVER)[0]
    bench = Bench(spec, place / "out")
    with closing(bench.run(bench.cells[1])) as begun:
        next(begun)
    assert len(list((place / "out").glob("*.state"))) == 1
    for trouble in ("trouble-1-kill", "trouble-2-kill", "trouble-3-raise"):
        (place / trouble).touch()
    home = {"HOME": str(place / "home")}
    flags = ("--on", "ray", "--jobs", "2")
    shown, errors = started("out", *flags, **home).communicate()
    assert "1 of 6 cells failed; the same command tries them again" in errors
    assert "RuntimeError: no such thing" in errors
    finished = [path for path in (place / "out").glob("*.jsonl") if records.read(path)[0].end]
    assert len(finished) == 5
    before = {path: path.stat().st_mtime_ns for path in finished}
    third = started("out", *flags, **home)
    shown, errors = third.communicate()
    assert (third.returncode, errors) == (0, "")
    assert "mine lr=0.1" in shown
    assert before == {path: path.stat().st_mtime_ns for path in finished}, "a cell ran twice"
    serial(place / "whole")
    assert essence(place / "out") == essence(place / "whole")
    assert sorted(place.glob("home/*")) == [], "Ray wrote into the home folder"
    assert [p.name for p in (place / "out").iterdir() if p.suffix not in (".jsonl", "")] == []


def test_without_ray_a_sentence_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    tasks = sweep.tasks(sweep.expand(VALUES, OVER), OVER, place)
    with pytest.raises(tapr.TaprError, match="--on ray needs ray, which is not installed"):
        next(on_ray.run(tasks, place))
    with pytest.raises(tapr.TaprError, match="expected --jobs or --address, got both"):
        next(on_ray.run(tasks, place, jobs=2, address="auto"))
