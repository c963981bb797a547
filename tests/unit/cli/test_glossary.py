"""The glossary explains words, on the terminal and as a page."""

from typer.main import get_command
from typer.testing import CliRunner

from tapr.cli import WORDS, app, glossary
from tools import cli_reference


def test_a_word_is_explained() -> None:
    done = CliRunner().invoke(app, ["glossary", "Severity"])
    assert done.output.split() == ["severity", *glossary.WORDS["severity"].meaning.split()]


def test_without_a_word_all_are_explained_in_order() -> None:
    assert list(glossary.WORDS) == sorted(glossary.WORDS)
    output = CliRunner().invoke(app, ["glossary"]).output
    assert [word for word in glossary.WORDS if word not in output] == []


def test_an_unknown_word_gets_a_suggestion() -> None:
    done = CliRunner().invoke(app, ["glossary", "sevrity"])
    assert "unknown word 'sevrity'; did you mean 'severity'?" in str(done.exception)


def test_every_help_leads_to_the_glossary() -> None:
    commands = dict(cli_reference.commands(get_command(app)))
    assert [path for path, command in commands.items() if command.epilog != WORDS] == []
