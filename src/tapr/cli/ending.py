"""How the command ends: an exit code, and at most one sentence on stderr in the same form.

| exit code | why                                                                             |
|-----------|---------------------------------------------------------------------------------|
| 0         | all went well                                                                   |
| 1         | `tapr: error: ...`, or a check said no                                          |
| 2         | the command line itself is wrong                                                |
| 130       | Ctrl-C (SIGINT): what is under way is saved; a second one ends at once, unsaved |
| 143       | SIGTERM, handled like Ctrl-C                                                    |
"""

import os
import signal
import sys
from typing import Any

import typer

from tapr import process
from tapr.errors import TaprError, expectation

TRACEBACK = "TAPR_TRACEBACK"  # set it to see where an unexpected error comes from
INTERRUPTED = 128 + signal.SIGINT
SAME = "stopped; the same command resumes where this one stopped"
# Commands that leave an interruption to `run`, and what it then says; the others say it themselves.
SENTENCES = {
    "corrupt": SAME,
    "data get": SAME,
    "train": "stopped; the same command with --resume resumes after the last finished epoch",
}


def stopped() -> typer.Exit:
    """Say that the command can be resumed, and return the exit to raise after an interruption."""
    typer.echo(SAME, err=True)
    return typer.Exit(INTERRUPTED)


def run(app: typer.Typer) -> int:
    """Run the command and return its exit code; what went wrong has been said by then."""
    with process.listening() as signals:
        code = _run(app)
        if code != INTERRUPTED or signals.first is None:
            return code
        words = " ".join(sys.argv[1:])
        for command, sentence in SENTENCES.items():
            if f"{words} ".startswith(f"{command} "):
                typer.echo(sentence, err=True)
        return 128 + signals.first


def _run(app: typer.Typer) -> int:
    try:
        code = app(standalone_mode=False)
    except TaprError as error:
        return _say(str(error), 1)
    except typer.Abort:
        return INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", 1)
    except UnicodeDecodeError as error:
        return _say(f"expected text in UTF-8, got other bytes: {error}", 1)
    except Exception as error:
        if hasattr(error, "format_message"):  # typer's own: a wrong command line
            return _say_usage(error)
        if os.environ.get(TRACEBACK):
            raise
        what = f"{type(error).__name__}: {error}".strip().partition("\n")[0]
        return _say(f"unexpected {what}; set {TRACEBACK}=1 to see where, and please report it", 1)
    return code if isinstance(code, int) else 0


def _say_usage(error: Any) -> int:
    sentence = error.format_message().rstrip(".")
    if sentence:  # a command without anything has shown its help instead
        cause = error.__cause__
        if hasattr(cause, "errors"):
            sentence = sentence.partition(": ")[0] + ": " + expectation(cause.errors()[0])
        command = error.ctx.command_path if error.ctx else "tapr"
        _say(f"{sentence[0].lower()}{sentence[1:]}; see `{command} --help`", 2)
    return 2


def _say(sentence: str, code: int) -> int:
    typer.echo(f"tapr: error: {sentence}", err=True)
    return code
