"""Every command's help shows an example."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from tapr.cli import app


def _commands(command: Any, path: str) -> Iterator[tuple[str, str]]:
    yield path, command.help or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(below, f"{path} {name}")


def test_every_help_has_an_example() -> None:
    helps = dict(_commands(get_command(app), "tapr"))
    assert {"tapr", "tapr bench", "tapr data get", "tapr models info"} <= helps.keys()
    assert [path for path, text in helps.items() if "Example: `tapr" not in text] == []
