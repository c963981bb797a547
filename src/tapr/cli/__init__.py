"""The `tapr` command: arguments, printing and exit codes. One module per command.

Command modules import nothing heavy at their top, so that `tapr --help` starts without torch.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import typer

import tapr

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep an image classifier working when the data at test time has changed.\n\n"
    "Example: `tapr bench digits` (needs no download)",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tapr {tapr.__version__} (torch {version('torch')})")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show versions and exit."
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


for _command in (
    "adapt",
    "bench",
    "choose",
    "compare",
    "corrupt",
    "data",
    "doctor",
    "figures",
    "methods",
    "models",
    "report",
    "serve",
    "show",
    "sweep",
    "train",
    "views",
):
    import_module(f"tapr.cli.{_command}")
