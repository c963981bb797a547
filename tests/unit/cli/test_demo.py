"""The demo ends with a page, resumes, and says what it lacks."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tapr.cli import app, demo
from tapr.errors import DataError
from tapr.runs import spec

SMALL = {"images": 40, "methods": {"source": {}, "steady": {}}}
values = spec.values


def offline(name: str) -> DataError:
    return DataError(f"{name} is not on this machine")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Result]:
    def small(name: str) -> dict[str, Any]:
        return {**values(name), **SMALL}

    monkeypatch.setattr(spec, "values", small)
    monkeypatch.setattr(demo, "_fetch", offline)
    return lambda: CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])


def test_the_demo_ends_with_a_page_and_resumes(run: Callable[[], Result], tmp_path: Path) -> None:
    done = run()
    assert done.exit_code == 0, done.output
    assert "the page shows the digits: cifar10 is not on this machine" in done.output
    assert "of the images right" in (tmp_path / "report.html").read_text("utf-8")
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")}
    assert len(times) == 2
    assert run().exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.jsonl")} == times


def test_an_interrupted_demo_says_how_to_resume(
    run: Callable[[], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_fetch", interrupt)
    done = run()
    assert done.exit_code == 130
    assert "the same command resumes where this one stopped" in done.output


def test_the_demo_says_what_is_not_installed(
    run: Callable[[], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NEEDED", ("no_such_package",))
    done = run()
    assert "the demo needs no_such_package" in str(done.exception)
    assert "pip install 'torch-tapr[demo]'" in str(done.exception)
