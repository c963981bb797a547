"""Write docs/cli.md from the commands themselves: `python tools/cli_reference.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tapr.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"
HEAD = """\
# Commands

<!-- Written by tools/cli_reference.py from the commands' own help: edit that, run `make docs`. -->

`tapr COMMAND --help` says the same in the terminal. Every command ends with exit code 0 when all
went well, with 1 and `tapr: error: ...` on stderr when it did not, with 2 when the command line
itself is wrong, with 130 after Ctrl-C and with 143 after SIGTERM. `tapr --install-completion`
teaches your shell the commands, the options and the names they take.
"""
BRACES = str.maketrans("", "", "{}")  # typer's marks around what is required
EVERYWHERE = {"install_completion", "show_completion", "help"}  # typer's own options


def commands(command: Any, path: str = "tapr") -> Iterator[tuple[str, Any]]:
    """Every command with the words that call it, in alphabetical order."""
    yield path, command
    for name in sorted(getattr(command, "commands", {})):
        yield from commands(command.commands[name], f"{path} {name}")


def section(path: str, command: Any) -> str:
    """One command: what it does, how it is called, a table of what it takes."""
    context = command.context_class(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)]).translate(BRACES)
    parts = [f"## {path}", command.help.strip(), f"```text\n{usage}\n```"]
    own = [each for each in command.get_params(context) if each.name not in EVERYWHERE]
    if own:
        rows = [_row(*each.get_help_record(context)) for each in own]
        parts.append("\n".join(["| takes | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def page() -> str:
    """The whole page."""
    sections = [section(path, command) for path, command in commands(get_command(app))]
    return "\n\n".join([HEAD.strip(), *sections]) + "\n"


def _row(names: str, text: str) -> str:
    meaning = " ".join(text.split()).replace("[", "\\[")  # a default is no link
    return f"| `{names}` | {meaning} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
