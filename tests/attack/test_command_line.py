"""The command under attack: kills, signals, full disks, two processes, hostile names and files.

Each test is named after what must not happen, or after what must hold however it is stopped.
`TAPR_ATTACK` multiplies the number of kills, and of interruptions (300 and 200 at the most);
`make attack` sets it.
"""

import csv
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner, Result

import tapr
from tapr.adapters import Adapter
from tapr.cli import app
from tapr.datasets import Dataset
from tapr.errors import DataError, InputError
from tapr.records import BatchRecord
from tapr.runs import store
from tapr.runs.evaluate import evaluate
from tapr.runs.labels import Truth, class_names
from tapr.runs.predictions import Predictions, Row
from tapr.runs.store import Journal, locked
from tapr.streams import Stream, clean

ATTACK = int(os.environ.get("TAPR_ATTACK", "1"))
IMAGES = 24
MODEL = """
import os, pathlib, time, torch
from torch import nn

class Net(nn.Sequential):
    def forward(self, images):
        time.sleep(float(os.environ.get("SLOWLY", 0)))
        logits = super().forward(images)
        bad = images.amin((1, 2, 3)) == 1  # an image that is all white
        return torch.where(bad[:, None], float("nan"), logits)

def build():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten()
        return Net(*layers, nn.Linear(54, 3))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images of 8 x 8 and a module with a model."""
    generator = np.random.default_rng(0)
    (tmp_path / "photos").mkdir()
    for number in range(IMAGES):
        pixels = generator.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number:02d}.png")
    (tmp_path / "attacked_model.py").write_text(MODEL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "attacked_model", raising=False)
    return tmp_path


def command(*more: str, out: str = "out.csv", source: str = "photos") -> list[str]:
    words = ["adapt", source, "--model", "attacked_model:build", "--size", "8", "-o", out]
    return [
        *words,
        "--batch-size",
        "4",
        "--method",
        "pest",
        "--option",
        "steps=1",
        "--option",
        "lr=0.01",
        *more,
    ]


def adapt(*more: str, **where: str) -> Result:
    return CliRunner().invoke(app, command(*more, **where))


def good(*more: str, **where: str) -> str:
    done = adapt(*more, **where)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def refusal(*more: str, **where: str) -> str:
    """The sentence that the command ends with."""
    error = adapt(*more, **where).exception
    assert isinstance(error, tapr.TaprError), repr(error)
    return str(error)


def rows(path: str = "out.csv") -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8", errors="surrogateescape") as file:
        return list(csv.DictReader(file))


def started(*words: str, slowly: float = 0.0, limit: int | None = None) -> subprocess.Popen[str]:
    """A real `tapr`, alone in its process group."""

    def prepare() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a script's background job ignores it
        if limit is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    sources = str(Path(tapr.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-m", "tapr.cli", *words],
        env={**os.environ, "PYTHONPATH": sources, "SLOWLY": str(slowly), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
    )


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300  # a busy machine
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def lines(path: str) -> int:
    return Path(path).read_bytes().count(b"\n") if Path(path).exists() else 0


# Two processes, and what belongs to others


def test_a_refused_process_does_not_remove_the_winners_lock() -> None:
    with Predictions(Path("out.csv")).locked():
        for _ in range(2):
            assert "another tapr is writing into out.csv.run" in refusal()
            assert Path("out.csv.run").is_dir()
        assert "another tapr is writing" in refusal("--no-resume")
    good()
    assert len(rows()) == IMAGES


@pytest.mark.slow
def test_two_processes_do_not_write_one_file() -> None:
    both = [started(*command(), slowly=0.05) for _ in range(2)]
    ended = [process.communicate() for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes == [0, 1], ended
    (errors,) = [errors for _, errors in ended if "error" in errors]
    assert "another tapr" in errors
    assert len(rows()) == IMAGES


def test_a_run_that_was_begun_meanwhile_is_not_begun_again(monkeypatch: pytest.MonkeyPatch) -> None:
    good(out="other.csv")
    free = Predictions.check_free

    def overtaken(self: Predictions) -> None:
        free(self)
        for end in ("", ".run"):
            os.rename(f"other.csv{end}", f"out.csv{end}")

    monkeypatch.setattr(Predictions, "check_free", overtaken)
    before = Path("other.csv").read_bytes()
    assert "another tapr has written or removed out.csv in the meantime" in refusal()
    assert Path("out.csv").read_bytes() == before


@pytest.mark.parametrize("csv_is_there", [True, False])
@pytest.mark.parametrize("more", [[], ["--no-resume"]])
def test_a_strangers_folder_is_not_removed(csv_is_there: bool, more: list[str]) -> None:
    Path("out.csv.run").mkdir()
    Path("out.csv.run/precious").write_text("mine")
    if csv_is_there:
        Path("out.csv").touch()
    assert "not made by tapr adapt" in refusal(*more) or csv_is_there
    assert os.listdir("out.csv.run") == ["precious"]
    assert Path("out.csv").exists() == csv_is_there


def test_a_strangers_record_is_not_taken_for_ours() -> None:
    Path("out.csv.run").mkdir()
    Path("out.csv.run/run.json").write_text('{"laps": 3}')
    assert "not written by tapr adapt: no 'identity'" in refusal("--no-resume")
    assert Path("out.csv.run/run.json").read_text() == '{"laps": 3}'


def test_a_finished_file_is_not_lost_to_a_failing_check() -> None:
    good()
    kept = {path: path.read_bytes() for path in (Path("out.csv"), Path("out.csv.run/run.json"))}
    for wrong in (["--size", "9"], ["--labels", "two.txt"], ["--option", "lr=fast"]):
        Path("two.txt").write_text("ant\nbee\n")
        assert adapt("--no-resume", *wrong).exit_code == 1
        assert {path: path.read_bytes() for path in kept} == kept
    good("--no-resume", "--option", "lr=0.3")
    assert Path("out.csv").read_bytes() != kept[Path("out.csv")]


def test_a_failing_check_leaves_nothing_behind() -> None:
    before = sorted(os.listdir())
    refusal("--size", "9", out="deep/out.csv")
    assert sorted(os.listdir()) == before


# Stopped, killed, interrupted

AGAIN = pytest.mark.skipif(
    ATTACK == 1, reason="once is tested in tests/unit; `make attack` does it again and again"
)


@AGAIN
@pytest.mark.slow
def test_killed_again_and_again_no_row_is_lost_or_changed(tally: Any) -> None:
    good(out="whole.csv")
    Path("out.csv.run").mkdir()
    Path("out.csv.run/.run.json.x.part").touch()  # of a kill while the record was written
    killed_and_resumed(4 * ATTACK, lambda: tally.count("SIGKILL, then resumed", "fine"))


def killed_and_resumed(kills: int, count: Callable[[], None]) -> None:
    """SIGKILL `tapr adapt` so often, soon after it has written new rows, then let it finish.

    A run that finishes meanwhile is compared with an undisturbed one, and another one begun.
    """
    chance = random.Random(0)
    while kills:
        before = lines("out.csv")
        process = started(*command(), slowly=0.05)
        until(lambda: lines("out.csv") > before or process.poll() is not None)  # noqa: B023
        time.sleep(chance.random() / 10)
        process.kill()
        _, errors = process.communicate()
        if process.returncode == -signal.SIGKILL:
            kills -= 1
            count()  # a test that fails is counted as lost data besides
            continue
        assert process.returncode == 0, errors
        compare_with_undisturbed()
    good()
    compare_with_undisturbed()


def test_a_state_that_a_kill_left_after_the_end_does_not_stay() -> None:
    good()
    Path("out.csv.run/999.state").touch()
    good()
    assert set(os.listdir("out.csv.run")) - {".lock"} == {"run.json"}
    Path("spec.toml").write_text(SPEC)
    for words in (["bench"], ["sweep", "--jobs", "1"], ["bench"]):
        done = CliRunner().invoke(app, [words[0], "spec.toml", "--out", "out", *words[1:]])
        assert done.exit_code == 0, done.output
        assert not list(Path("out").glob("*.state"))
        (path,) = Path("out").glob("*.jsonl")
        path.with_name(f"{path.stem}.999.state").touch()


def compare_with_undisturbed() -> None:
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert set(os.listdir("out.csv.run")) - {".lock"} == {"run.json"}
    rmtree("out.csv.run")
    Path("out.csv").unlink()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["term", "int"]
)
def test_a_signal_loses_nothing_and_is_not_silent(number: signal.Signals, code: int) -> None:
    good(out="whole.csv")
    process = started(*command(), slowly=0.1)
    until(lambda: lines("out.csv") > 8)
    process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode == code, errors
    assert errors.endswith("stopped; the same command resumes where this one stopped\n")
    done = len(rows())
    assert [path.stem for path in Path("out.csv.run").glob("*.state")] == [
        str(Path("out.csv").stat().st_size)
    ]
    assert f"resuming after {done} images" in good()
    assert Path("out.csv").read_bytes() == Path("whole.csv").read_bytes()


SPEC = """
data = "folder:photos"
corruptions = ["contrast"]
batch_size = 4
model = "attacked_model:build"

[methods.mine]
method = "pest"
steps = 1
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["bench"], id="bench"),
        pytest.param(["sweep", "--jobs", "1"], id="sweep", marks=AGAIN),
    ],
)
def test_a_terminated_benchmark_loses_nothing_and_is_not_silent(words: list[str]) -> None:
    Path("spec.toml").write_text(SPEC)
    process = started(words[0], "spec.toml", "--out", "out", *words[1:], slowly=0.1)
    until(lambda: sum(lines(str(path)) for path in Path("out").glob("*.jsonl")) > 3)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 143, errors
    assert errors.startswith("stopped; the same command ")
    (path,) = Path("out").glob("*.jsonl")
    states = [state.name for state in Path("out").glob("*.state")]
    assert states == [f"{path.stem}.{path.stat().st_size}.state"]
    for out in ("out", "whole"):
        done = CliRunner().invoke(app, ["bench", "spec.toml", "--out", out])
        assert done.exit_code == 0, done.output
    one, other = (next(Path(out).glob("*.jsonl")) for out in ("out", "whole"))
    assert records_of(one) == records_of(other)
    assert {path.suffix for path in Path("out").iterdir()} <= {".jsonl", ""}


@AGAIN
@pytest.mark.slow
@pytest.mark.parametrize("words", [["bench"], ["sweep", "--jobs", "2"]], ids=["bench", "sweep"])
def test_killed_again_and_again_a_benchmark_loses_no_record(words: list[str], tally: Any) -> None:
    Path("spec.toml").write_text(SPEC + "[methods.tent]\n")

    def written() -> int:
        return sum(lines(str(path)) for path in Path("out").glob("*.jsonl"))

    def finish(out: str) -> dict[str, list[dict[str, Any]]]:
        done = CliRunner().invoke(app, ["bench", "spec.toml", "--out", out])
        assert done.exit_code == 0, done.output
        return {path.name: records_of(path) for path in Path(out).glob("*.jsonl")}

    whole = finish("whole")
    assert len(whole) == 2
    chance, kills = random.Random(4), ATTACK
    while kills:
        before = written()
        process = started(words[0], "spec.toml", "--out", "out", *words[1:], slowly=0.05)
        until(lambda: written() > before or process.poll() is not None)  # noqa: B023
        time.sleep(chance.random() / 5)
        process.kill()
        _, errors = process.communicate()
        if process.returncode == -signal.SIGKILL:
            kills -= 1
            tally.count("SIGKILL, then resumed", "fine")
            continue
        assert process.returncode == 0, errors
        assert finish("out") == whole
        rmtree("out")
    assert finish("out") == whole


@pytest.mark.slow
def test_a_second_signal_does_not_wait() -> None:
    hang = (
        "import time\n"
        "from tapr import process\n"
        "with process.listening():\n"
        "    try: print('ready', flush=True); time.sleep(60)\n"
        "    except KeyboardInterrupt: print('saving', flush=True); time.sleep(60)\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        sources = str(Path(tapr.__file__).parents[1])
        waiting = subprocess.Popen(
            [sys.executable, "-c", hang],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": sources},
        )
        assert waiting.stdout is not None
        assert waiting.stdout.readline() == "ready\n"
        waiting.send_signal(signal.SIGTERM)
        waiting.send_signal(signal.SIGTERM)  # at once: the same request, as `timeout` sends it
        assert waiting.stdout.readline() == "saving\n"
        time.sleep(0.3)
        assert waiting.poll() is None
        began = time.monotonic()
        waiting.send_signal(number)
        assert waiting.wait() == 128 + number
        assert time.monotonic() - began < 5
        waiting.stdout.close()


# An exception at the line that would close a file leaves it to the garbage collector.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Moving(Adapter):
    """Adds the images' mean to a buffer: whatever is done twice or not at all shows."""

    seen: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.register_buffer("seen", torch.zeros(2))

    def adapt(self, images: Tensor) -> tapr.Prediction:
        for _ in range(3):
            self.seen[0] += images.mean()
            self.seen[1] = self.seen[1] * 0.9 + torch.rand((), generator=self.generator)
        logits = self.logits(images) * self.seen.sum().cos()
        return tapr.Prediction(logits, self.seen.sum().item(), {}, steps=3, kept=1, refused=0)


def moving() -> Moving:
    return Moving(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)).eval())


def stream(batches: int = 8) -> Stream:
    pixels = np.random.default_rng(0).integers(0, 256, (batches * 2, 2, 2, 3), np.uint8)
    return Stream([clean(Dataset("noise", pixels, None, ("a", "b", "c")))], 2)


def records_of(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's file, but for the clock and the environment."""
    found = [json.loads(line) for line in path.read_bytes().splitlines()]
    clock = ("seconds", "environment", "peak_mib", "ended")
    return [{key: line[key] for key in line if key not in clock} for line in found]


def run_cell(path: Path, consume: Callable[[BatchRecord], object] = bool) -> None:
    """A cell of a benchmark, from where its file stands."""
    torch.manual_seed(0)
    adapter, journal = moving(), Journal(path)
    done = journal.resume(adapter)
    for record in journal.write({"x": 1}, adapter, evaluate(adapter, stream(), done)):
        consume(record)


class Interrupting:
    """Raises KeyboardInterrupt at the n-th line of our code that is run, as a signal would."""

    FILES = (
        *("adapters/adapter.py", "adapters/guard.py", "adapters/moving.py", "streams/stream.py"),
        *("runs/store.py", "runs/evaluate.py"),
        *("runs/adapting.py", "runs/folder.py", "runs/predictions.py", "test_command_line.py"),
    )

    def __init__(self, moment: int) -> None:
        self.left = moment

    def __enter__(self) -> "Interrupting":
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        gc.collect()  # files that an interruption left open, while their warning is ignored
        torch.set_grad_enabled(True)  # who resumes is another process

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.endswith(self.FILES) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event in ("line", "return"):
            self.left -= 1
            if self.left == 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line


@UNRAISABLE
def test_interrupted_at_any_line_a_cell_is_not_resumed_to_another_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tally: Any
) -> None:
    run_cell(tmp_path / "whole" / "run.jsonl")
    whole = records_of(tmp_path / "whole" / "run.jsonl")
    with Interrupting(10**9) as all_lines:
        run_cell(tmp_path / "counted" / "run.jsonl")
    count = 10**9 - all_lines.left
    monkeypatch.setattr(store, "SAVING", 0.0)  # a state after the first batch, then no more
    chance = random.Random(1)
    saved = 0
    for moment in sorted(chance.sample(range(1, count), min(10 * ATTACK, 300, count - 1))):
        path = tmp_path / str(moment) / "run.jsonl"  # alone: listing a folder has lines as well
        with suppress(KeyboardInterrupt), Interrupting(moment):
            run_cell(path)
        states = [int(state.suffixes[-2][1:]) for state in path.parent.glob("*.state")]
        saved += path.exists() and states == [path.stat().st_size]
        if not Journal(path).finished:
            run_cell(path)
        assert records_of(path) == whole, moment
        tally.count("interrupted at any line, then resumed", "fine")
    assert saved > 2


@UNRAISABLE
def test_interrupted_at_any_line_adapt_is_not_resumed_to_other_rows(
    monkeypatch: pytest.MonkeyPatch, tally: Any
) -> None:
    good(out="whole.csv")
    with Interrupting(10**9) as all_lines:
        good(out="counted.csv")
    count = 10**9 - all_lines.left
    monkeypatch.setattr(store, "SAVING", 0.0)
    chance = random.Random(2)
    for moment in sorted(chance.sample(range(count // 4, count), min(5 * ATTACK, 200))):
        out = f"{moment}.csv"
        with Interrupting(moment):
            done = adapt(out=out)
        assert done.exit_code in (0, 130), done.output
        good(out=out)
        assert Path(out).read_bytes() == Path("whole.csv").read_bytes(), moment
        tally.count("interrupted at any line, then resumed", "fine")


def test_states_are_not_saved_after_every_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves: list[float] = []
    save = Moving.save

    def slow(self: Moving, path: Path | str) -> None:
        saves.append(time.monotonic())
        time.sleep(0.02)
        save(self, path)

    monkeypatch.setattr(Moving, "save", slow)
    adapter, journal = moving(), Journal(tmp_path / "run.jsonl")
    began = time.monotonic()
    batches = 0
    for _ in journal.write({"x": 1}, adapter, evaluate(adapter, stream(400))):
        batches += 1
    assert batches == 400
    assert 1 <= len(saves) <= 1 + (time.monotonic() - began) / 0.4
    assert len(saves) < batches / 20


def test_killed_before_the_next_state_a_cell_is_not_resumed_to_another_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cell(tmp_path / "whole.jsonl")
    monkeypatch.setattr(store, "SAVING", 0.0)
    monkeypatch.setattr(store, "INTERRUPTIONS", ())  # as after SIGKILL, nothing is saved
    for batch in range(8):
        path = tmp_path / f"{batch}.jsonl"

        def killed(record: BatchRecord, batch: int = batch) -> None:
            if record.number == batch:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_cell(path, killed)
        assert len(list(tmp_path.glob(f"{batch}.*.state"))) == 1
        (tmp_path / f".{batch}.77.state.x.part").touch()
        run_cell(path)
        assert records_of(path) == records_of(tmp_path / "whole.jsonl")
        assert [found.name for found in tmp_path.glob(f"*{batch}.*")] == [path.name]


def test_the_states_of_a_label_that_a_glob_would_expand_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "fog-5.a[b]*?.seed0.1234.jsonl"
    seen: list[int] = []

    def stop(record: BatchRecord) -> None:
        seen.append(record.number)
        if record.number == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cell(path, stop)
    run_cell(path, lambda record: seen.append(record.number))
    assert seen == list(range(8))
    assert os.listdir(tmp_path).count(path.name) == 1
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".state")]


@pytest.mark.slow
def test_a_full_disk_is_not_unexpected() -> None:
    process = started(*command(), limit=3000)  # a state is larger, the first rows are not
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "tapr: error: cannot save the adapter's state in out.csv.run/" in errors
    assert "unexpected" not in errors
    good()
    assert len(rows()) == IMAGES


# Hostile images, names and files


def test_an_image_whose_logits_are_not_finite_gets_no_class() -> None:
    Image.new("RGB", (8, 8), "white").save("photos/09-white.png")
    for more in ([], ["--no-compare"]):
        summary = json.loads(
            good("--json", "--no-resume", *more).splitlines()[-1],
            parse_constant=pytest.fail,
        )
        assert (summary["images"], summary["failed"]) == (IMAGES, 1)
        (bad,) = [row for row in rows() if not row["predicted"]]
        assert bad["path"].endswith("-white.png")
        assert bad["error"] == "the model's logits for this image are not finite"
        assert set(bad.values()) - {"harm"} == {bad["path"], bad["error"], ""}  # its batch's health
        os.replace(f"photos/{bad['path']}", "photos/00-white.png")  # now in the first batch
        json.loads(Path("out.csv.run/run.json").read_text(), parse_constant=pytest.fail)


def test_an_unadapted_model_that_is_not_finite_does_not_spoil_the_summary() -> None:
    from tapr.runs.summary import summarise

    known = [Row(f"{n}.png", 1, None, 0.9, 0.3, n % 2, None, 0.6, 0.6, n % 2) for n in range(8)]
    row = Row("white.png", 1, None, 0.5, 0.5, label=0)
    alone, both = summarise(known, ("a", "b")), summarise([*known, row], ("a", "b"))
    assert (both.images, both.changed, both.agreement) == (9, alone.changed, alone.agreement)
    assert both.accuracy == (1.0, round(4 / 9, 4))
    assert both.confidence[0] == alone.confidence[0]


NAMES = [
    b"carriage\rreturn.png",
    b"new\nline.png",
    b'quo"te,comma.png',
    b"latin\xe9.png",
    b"\r.png",
]


def test_no_name_of_a_file_makes_its_rows_unreadable() -> None:
    pixels = Path("photos/00.png").read_bytes()
    for name in NAMES:
        Path("photos", os.fsdecode(name)).write_bytes(pixels)
    Path("photos", os.fsdecode(b"torn\xff\r.png")).write_bytes(b"no image")
    first = good()
    assert f"{IMAGES + len(NAMES)} images predicted, 1 could not" in first
    found = {os.fsencode(row["path"]) for row in rows()}
    assert found >= {*NAMES, b"torn\xff\r.png"}
    assert "29 images predicted" in good()  # finished, and read again
    listed = [os.fsencode("photos/" + row["path"]) for row in rows() if "\n" not in row["path"]]
    Path("list.txt").write_bytes(b"\n".join(listed) + b"\n")
    good(source="list.txt", out="listed.csv")
    with Path("list.txt").open("rb") as file:
        process = subprocess.run(
            [sys.executable, "-m", "tapr.cli", *command(source="-", out="stdin.csv")],
            env={**os.environ, "PYTHONPATH": str(Path(tapr.__file__).parents[1])},
            stdin=file,
            capture_output=True,
        )
    assert process.returncode == 0, process.stderr
    assert {os.fsencode(row["path"]) for row in rows("stdin.csv")} == {
        name.rstrip(b"\r") for name in listed
    }
    assert Path("stdin.csv").read_bytes() == Path("listed.csv").read_bytes()


def test_a_fifo_a_device_or_a_socket_is_not_waited_for() -> None:
    os.mkfifo("photos/fifo.jpg")
    Path("photos/zero.jpg").symlink_to("/dev/zero")
    Path("photos/folder.jpg").symlink_to("..")
    Path("photos/link.png").symlink_to("00.png")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("photos/socket.jpg")
        good()
    errors = {row["path"]: row["error"] for row in rows() if row["error"]}
    names = ("fifo.jpg", "folder.jpg", "socket.jpg", "zero.jpg")
    assert errors == dict.fromkeys(names, "not a regular file")
    assert len(rows()) == IMAGES + 5
    assert "list.txt is a device" in refusal(source=_device("list.txt"))


def _device(name: str) -> str:
    Path(name).symlink_to("/dev/zero")
    return name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.pop("summary"), "no 'summary'"),
        (lambda run: run.update(summary=[1]), r"summary is \[1\]"),
        (lambda run: run["summary"].pop("failed"), "the summary in .* is damaged: failed: "),
        (lambda run: run["summary"].update(entropy="x"), "the summary in .* is damaged: entropy"),
        (lambda run: run.update(identity=3), "identity is 3"),
        (lambda run: run.update(classes="many", summary=None), "classes is 'many'"),
        (lambda run: run.clear(), "no 'identity'"),
    ],
)
def test_a_damaged_record_is_not_unexpected(
    change: Callable[[dict[str, Any]], object], message: str
) -> None:
    good()
    path = Path("out.csv.run/run.json")
    run = json.loads(path.read_text())
    change(run)
    path.write_text(json.dumps(run))
    with pytest.raises(DataError, match=message):
        raise adapt().exception or AssertionError


@pytest.mark.parametrize("text", ["", "[]", "3", "\xff", "{", "null"])
def test_a_record_that_is_none_is_not_unexpected(text: str) -> None:
    good()
    Path("out.csv.run/run.json").write_text(text, encoding="latin-1")
    assert "run.json is damaged" in refusal()


@pytest.mark.parametrize("out", [".", "..", "photos", ""])
def test_a_folder_as_the_file_to_write_is_not_unexpected(out: str) -> None:
    assert "expected a file to write with --out, got the folder" in refusal(out=out)
    assert "expected a file for --save-state" in refusal("--save-state", "photos")


def test_a_label_beyond_the_classes_is_not_taken() -> None:
    Path("truth.csv").write_text("00.png,2\n01.png,99999\n")
    message = refusal("--truth", "truth.csv")
    assert (
        "expected labels from 0 to 2, as the model has 3 classes, got 99999 for 01.png" in message
    )
    assert not Path("out.csv.run").exists()
    Path("truth.csv").write_text(f"00.png,{'9' * 5000}\n")
    with pytest.raises(DataError, match="expected rows of path,label"):
        Truth(["a"], Path("truth.csv"))


def test_text_that_is_not_utf8_is_not_unexpected() -> None:
    Path("names.txt").write_bytes(b"ant\nb\xe9e\ncat\n")
    Path("names.json").write_bytes(b'["ant", "b\xe9e", "cat"]')
    for name in ("names.txt", "names.json"):
        with pytest.raises(DataError, match=f"class names from {name}: its text is not UTF-8"):
            class_names(Path(name), {})
    Path("truth.csv").write_bytes(b"00.png,b\xe9e\n")
    with pytest.raises(DataError, match="the file's text is not UTF-8"):
        Truth(["ant", "bée"], Path("truth.csv"))
    Path("spec.toml").write_bytes(b'name = "b\xe9e"\n')
    process = started("bench", "spec.toml")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "UTF-8" in errors
    assert "unexpected" not in errors


def test_a_changed_row_is_not_unexpected() -> None:
    good()
    record = Path("out.csv.run/run.json")
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "summary": None}))
    Path("out.csv").write_text(Path("out.csv").read_text().replace(",0,", ",7,", 1))
    good()  # without a state it starts anew
    assert {row["predicted"] for row in rows()} <= {"0", "1", "2"}
    path = Path("out.csv")
    path.write_bytes(path.read_bytes() + b"x.png,\r,a\n")
    with pytest.raises((DataError, InputError)):
        raise adapt().exception or AssertionError


def test_bench_does_not_write_into_a_folder_that_is_locked(tmp_path: Path) -> None:
    refused = pytest.raises(DataError, match="another tapr is writing")
    with locked(tmp_path / "runs"), refused, locked(tmp_path / "runs"):
        pass
    with locked(tmp_path / "runs"):
        assert os.listdir(tmp_path / "runs") == [".lock"]
