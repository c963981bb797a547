"""The `tapr` command: arguments, printing and exit codes. One module per command.

Command modules import nothing heavy at their top, so that `tapr --help` starts without torch.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import typer

import tapr

PANELS = {  # of `tapr --help`: the commands, in the order in which they are shown
    "Use": ("demo", "adapt", "serve", "choose", "doctor", "methods", "glossary"),
    "Measure": ("bench", "sweep", "report", "compare", "ablate", "figures"),
    "Build": ("data", "show", "corrupt", "views", "models", "train"),
}
MODULES = {"ablate": "sweep"}  # a command that shares a module with another
WORDS = "`tapr glossary` explains the words used here; `tapr glossary WORD` explains one of them."

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep an image classifier working when the data at test time has changed.\n\n"
    "Example: `tapr demo`",
    epilog=WORDS,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tapr {tapr.__version__} (torch {version('torch')})")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Show the versions of tapr and torch, and exit.",
    ),
) -> None:
    pass


def main() -> None:
    """Run the command and exit with its code; `tapr.cli.ending` says which."""
    from tapr import process
    from tapr.cli.ending import run

    process.prepare()
    sys.path.append("")  # `module:Name` may be of the working directory; installed ones come first
    sys.exit(run(app))


def _arrange() -> None:
    """Import every command, put it into its panel, and end its help with the glossary."""
    place = {name: panel for panel, names in PANELS.items() for name in names}
    for name in place:
        import_module(f"tapr.cli.{MODULES.get(name, name)}")
    for command in app.registered_commands:
        assert command.callback
        command.name = command.callback.__name__
        command.rich_help_panel, command.epilog = place[command.name], WORDS
    for group in app.registered_groups:
        assert group.typer_instance
        group.rich_help_panel, group.epilog = place[str(group.name)], WORDS
        for command in group.typer_instance.registered_commands:
            command.epilog = WORDS
    order = list(place)
    app.registered_commands.sort(key=lambda command: order.index(str(command.name)))


_arrange()
