"""Every command's help shows an example, and every option says what it does."""

from typer.main import get_command

from tapr.cli import app
from tools import cli_reference


def test_every_help_has_an_example() -> None:
    helps = {path: each.help for path, each in cli_reference.commands(get_command(app))}
    assert {"tapr", "tapr bench", "tapr data get", "tapr models info"} <= helps.keys()
    assert [path for path, text in helps.items() if "Example: `tapr" not in (text or "")] == []


def test_every_option_has_a_help_text() -> None:
    for path, command in cli_reference.commands(get_command(app)):
        assert [each.name for each in command.params if not each.help] == [], path
