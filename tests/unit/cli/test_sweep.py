"""`tapr sweep` and `tapr ablate`: flags, what they show, and how they end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from typer.testing import CliRunner

import tapr
from tapr.cli import app
from tapr.runs import parallel
from tapr.runs.parallel import Event

# Without corruptions and on the smallest data, so that setting up takes a moment.
QUICK = ["--data", "digits", "--model", "digits-small", "--corruptions", "none", "--images", "40"]


OTHER = ("--copy-to", "memory://other")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every cell fails at once; what is asked for is noted."""
    asked: list[int] = []

    def fail(tasks: list[Any], folder: Path, jobs: int) -> Iterator[Event]:
        asked.append(jobs)
        for task in tasks:
            yield Event("start", task.cell)
            yield Event("failed", task.cell, "out of luck")

    monkeypatch.setattr(parallel, "run", fail)
    return asked


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_what_failed_is_named_at_the_end(jobs: list[int], tmp_path: Path) -> None:
    done = run(
        "ablate", "lr", *QUICK, "--over", "lr=0.1,0.2", "--jobs", "3", "--out", str(tmp_path)
    )
    assert isinstance(done.exception, tapr.TaprError)
    assert str(done.exception).splitlines() == [
        "3 of 3 cells failed; the same command tries them again",
        "  clean source seed 0: out of luck",
        "  clean pest-randaugment lr=0.1 seed 0: out of luck",
        "  clean pest-randaugment lr=0.2 seed 0: out of luck",
    ]
    assert jobs == [3]


def test_as_many_processes_as_cores_unless_told(jobs: list[int], tmp_path: Path) -> None:
    run("sweep", "digits", *QUICK, "--methods", "source", "--out", str(tmp_path))
    assert jobs == [parallel.usable_cores()]


def test_finished_cells_are_shown_and_not_run_again(jobs: list[int], tmp_path: Path) -> None:
    arguments = [*QUICK, "--methods", "source,norm", "--batch-size", "20", "--out", str(tmp_path)]
    assert run("bench", "digits", *arguments, "--quiet").exit_code == 0
    done = run("sweep", "digits", *arguments, "--json")
    assert done.exit_code == 0, done.output
    shown = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["method"] for line in shown] == ["source", "norm"]
    assert "tapr report" in run("sweep", "digits", *arguments).stdout


def test_finished_cells_are_copied_to_a_url_and_come_back_from_there(
    jobs: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has the copies runs nothing again: here every cell that ran would fail."""
    first, second = tmp_path / "first", tmp_path / "second"
    arguments = [*QUICK, "--batch-size", "20", "--quiet", "--out"]
    assert run("bench", "digits", "--methods", "source,norm", *arguments, str(first)).exit_code == 0
    remote = fsspec.filesystem("memory")
    for place in (first, second):
        copied = ("--copy-to", f"memory://{tmp_path.name}")
        done = run("sweep", "digits", "--methods", "source,norm", *arguments, str(place), *copied)
        assert done.exit_code == 0, done.exception
    files = {path.name: path.read_bytes() for path in first.glob("*.jsonl")}
    assert len(files) == 2
    assert {path.name: path.read_bytes() for path in second.glob("*.jsonl")} == files
    found = remote.ls(f"/{tmp_path.name}", detail=False)
    assert {name.rpartition("/")[2]: remote.cat_file(name) for name in found} == files

    def full(*given: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(type(remote), "pipe_file", full)
    done = run("bench", "digits", "--methods", "source", *arguments, str(first), *OTHER)
    assert "cannot read or write memory://other: OSError: no space left" in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ablate", "batchsize"], "unknown ablation 'batchsize'; did you mean 'batch-size'"),
        (["sweep", "demoo"], "unknown spec 'demoo'; did you mean 'demo'"),
        (["sweep", "demo", "--over", "lr"], "expected --over key=a,b,c, got 'lr'"),
        (["sweep", "demo", "--over", "stps=1"], "unknown key 'stps' to sweep over; did you mean '"),
        (["sweep", "demo", "--over", "images=0"], "images in the spec"),
        (["sweep", "demo", "--copy-to", "s4://a"], "expected --copy-to as a URL for fsspec, got"),
    ],
)
def test_bad_input_gets_a_sentence(arguments: list[str], message: str) -> None:
    assert message in str(run(*arguments).exception)


def test_where_cells_run_is_checked_before_anything_else(jobs: list[int], tmp_path: Path) -> None:
    wrong = {
        ("--on", "rya"): "unknown place 'rya' to run cells on; did you mean 'ray'?",
        ("--address", "auto"): "expected --on ray with --address auto, got --on processes",
    }
    for command in (["sweep", "digits"], ["bench", "digits"], ["ablate", "lr"]):
        for flags, message in wrong.items():
            done = run(*command, *QUICK, *flags, "--out", str(tmp_path / "out"))
            assert isinstance(done.exception, tapr.TaprError)
            assert message in str(done.exception)
    assert not (tmp_path / "out").exists()
