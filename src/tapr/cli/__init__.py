"""The `tapr` command: arguments, printing and exit codes. One module per command.

Command modules import nothing heavy at their top, so that `tapr --help` starts without torch.
"""

import sys
from importlib import import_module
from importlib.metadata import version

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Keep an image classifier working when the data at test time has changed.\n\n"
    "Example: `tapr bench digits` (needs no download)",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tapr {version('tapr')} (torch {version('torch')})")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Show versions and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command; an error of ours is one sentence on stderr and exit code 1."""
    from tapr import process
    from tapr.errors import TaprError

    process.prepare()
    sys.path.append("")  # `module:Name` may be of the working directory; installed ones come first
    try:
        app()
    except TaprError as error:
        typer.echo(f"tapr: error: {error}", err=True)
        sys.exit(1)


for _command in (
    "adapt",
    "bench",
    "compare",
    "corrupt",
    "data",
    "doctor",
    "figures",
    "models",
    "report",
    "show",
    "sweep",
    "train",
    "views",
):
    import_module(f"tapr.cli.{_command}")
