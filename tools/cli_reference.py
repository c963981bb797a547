"""Write docs/cli.md and docs/glossary.md from the commands: `python tools/cli_reference.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from tapr.cli import app, glossary

DOCS = Path(__file__).parents[1] / "docs"
HEAD = """\
# Commands

<!-- Written by tools/cli_reference.py from the commands' own help: edit that, run `make docs`. -->

`tapr COMMAND --help` says the same in the terminal. Every command ends with exit code 0 when all
went well, with 1 and `tapr: error: ...` on stderr when it did not, with 2 when the command line
itself is wrong, with 130 after Ctrl-C and with 143 after SIGTERM. The [glossary](glossary.md)
explains the words.

**Completion.** `tapr --install-completion` teaches your shell (bash, zsh, fish or PowerShell) the
commands, the options and the names that they take; open a new shell afterwards, and
`tapr bench --methods ste<TAB>` completes. `tapr --show-completion` prints the script instead, for
those who keep such files themselves.
"""
WORDS = """\
# Glossary

<!-- Written by tools/cli_reference.py from tapr.cli.glossary: edit that, run `make docs`. -->

The words of the commands, the reports and these pages. `tapr glossary WORD` says the same in the
terminal. The last column has the symbols of the paper in which PEST was published.

| word | meaning | in the paper |
|---|---|---|
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


def glossary_page() -> str:
    """The glossary as a page."""
    rows = [
        f"| {name} | {word.meaning} | {word.paper} |".replace(" | x)", " \\| x)")
        for name, word in glossary.WORDS.items()
    ]
    return WORDS + "\n".join(rows) + "\n"


def _row(names: str, text: str) -> str:
    meaning = " ".join(text.split()).replace("[", "\\[")  # a default is no link
    return f"| `{names}` | {meaning} |"


if __name__ == "__main__":
    (DOCS / "cli.md").write_text(page(), encoding="utf-8")
    (DOCS / "glossary.md").write_text(glossary_page(), encoding="utf-8")
