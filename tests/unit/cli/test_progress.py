"""Long work: plain lines, and a bar on a terminal."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from tapr.cli.progress import Bar, watching


def test_lines_at_each_quarter(capsys: pytest.CaptureFixture[str]) -> None:
    with watching("getting x") as watch:
        watch.note("trying [a] http://a")
        for done in range(0, 2001, 10):
            watch.progress(done, 2000)
        watch.progress(3, None)
        for done in range(5):
            watch.progress(done, 4)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "trying [a] http://a",
        *(f"getting x: {percent} %" for percent in (25, 50, 75, 100)),
    ]


def test_a_bar() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with Progress(console=console) as bars:
        bar = Bar("getting x", bars)
        assert bars.tasks[0].total is None
        bar.progress(5, 20)
        bar.note("half way")
        assert bars.tasks[0].percentage == 25
    assert isinstance(console.file, io.StringIO)
    assert "half way" in console.file.getvalue()
