"""However a command ends: the exit code, and one sentence in one form."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from tapr.cli.ending import TRACEBACK, run, stopped
from tapr.errors import DataError, expectation


def _end(action: Callable[[int], object], *words: str, monkeypatch: pytest.MonkeyPatch) -> int:
    app = typer.Typer(pretty_exceptions_enable=False)

    @app.command()
    def only(count: int = typer.Option(1, min=1)) -> None:
        action(count)

    monkeypatch.setattr(sys, "argv", ["tapr", *words])
    return run(app)


def _raising(error: BaseException) -> Callable[[int], object]:
    def action(count: int) -> None:
        raise error

    return action


ENDINGS: dict[str, tuple[BaseException, int, str]] = {
    "ours": (DataError("no data here"), 1, "tapr: error: no data here\n"),
    "the system's": (
        PermissionError(13, "Permission denied", "runs/a"),
        1,
        "tapr: error: runs/a: Permission denied\n",
    ),
    "unexpected": (
        ZeroDivisionError("by zero\nand more"),
        1,
        "tapr: error: unexpected ZeroDivisionError: by zero; set TAPR_TRACEBACK=1 to see where, "
        "and please report it\n",
    ),
    "Ctrl-C": (KeyboardInterrupt(), 130, ""),
    "Ctrl-D": (EOFError(), 130, "\n"),
    "a check that says no": (typer.Exit(1), 1, ""),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error, code, said = ENDINGS[name]
    assert _end(_raising(error), monkeypatch=monkeypatch) == code
    assert capsys.readouterr() == ("", said)


def test_a_good_ending(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert _end(lambda count: print(count), "--count", "3", monkeypatch=monkeypatch) == 0
    assert capsys.readouterr() == ("3\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--count", "x"], "invalid value for '--count': expected a whole number, got 'x'"),
        (["--count", "0"], "invalid value for '--count': expected at least 1, got '0'"),
        (["--cuont", "1"], "no such option: --cuont"),
        (["more"], "got unexpected extra argument"),
    ],
)
def test_a_wrong_command_line(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _end(lambda count: count, *words, monkeypatch=monkeypatch) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"tapr: error: {said}")
    assert err.endswith("--help`\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train"],
            "stopped; the same command with --resume resumes after the last finished epoch\n",
        ),
        (["data", "get"], "stopped; the same command resumes where this one stopped\n"),
        (["data", "list"], ""),
        (["adapt"], "stopped; the same command resumes where this one stopped\n"),
    ],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_says_once_how_to_resume(
    words: list[str],
    said: str,
    number: signal.Signals,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["tapr", *words])
    app, data = typer.Typer(pretty_exceptions_enable=False), typer.Typer()
    app.add_typer(data, name="data")

    def long() -> None:
        signal.raise_signal(number)

    def resumable() -> None:
        try:
            long()
        except KeyboardInterrupt:
            raise stopped() from None

    app.command("train")(long)
    app.command("adapt")(resumable)
    data.command("get")(long)
    data.command("list")(long)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)  # not of a script
    assert run(app) == code
    assert capsys.readouterr() == ("", said)


def test_bytes_that_are_no_text_are_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _end(lambda count: b"b\xe9e".decode(), monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.startswith("tapr: error: expected text in UTF-8, got other")


def test_the_traceback_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(ZeroDivisionError):
        _end(_raising(ZeroDivisionError()), monkeypatch=monkeypatch)


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    code = "print('line\\n' * 100_000)"
    script = (
        f"import typer; from tapr.cli.ending import run; app = typer.Typer()\n"
        f"app.command()(lambda: {code}); raise SystemExit(run(app))"
    )
    (tmp_path / "long.py").write_text(script)
    pipe = subprocess.Popen(
        [sys.executable, tmp_path / "long.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert pipe.stdout is not None
    assert pipe.stderr is not None
    assert pipe.stdout.readline() == b"line\n"
    pipe.stdout.close()
    assert pipe.stderr.read() == b""
    pipe.stderr.close()
    assert pipe.wait() == 1


def test_what_pydantic_expected_in_our_words() -> None:
    assert expectation({"type": "int_parsing", "input": "x"}) == "expected a whole number, got 'x'"
    other = {"type": "enum", "msg": "Input should be red", "input": 3}
    assert expectation(other) == "Input should be red, got 3"
