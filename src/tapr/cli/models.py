"""`tapr models`: the shipped models, their cards, and the commands that made the numbers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tapr.cli import app, completing

models = typer.Typer(
    no_args_is_help=True,
    help="Show trained models and their cards, and check them.\n\n"
    "Example: `tapr models info cifar10-small`",
)
app.add_typer(models, name="models")

Name = Annotated[
    str,
    typer.Argument(
        help="The name of a shipped model, or a model file that has its card beside it.",
        autocompletion=completing.models,
    ),
]


@models.command("list")
def list_() -> None:
    """Show the shipped models and the architectures that take other weights.

    Example: `tapr models list`
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tapr.models import ARCHITECTURES, SHIPPED, card

    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("name", "data", "clean", "severity 5", "size"):
        table.add_column(heading)
    for name, path in SHIPPED.items():
        facts = card(name)
        table.add_row(
            name,
            facts["dataset"],
            f"{facts['clean_accuracy']:.2%}",
            f"{facts['severity_5_mean_of_15']:.2%}",
            f"{path.stat().st_size / 1e6:.1f} MB",
        )
    Console().print(table)
    typer.echo("also timm:NAME, and files; a foreign file needs one of these architectures:")
    typer.echo("  " + ", ".join([*ARCHITECTURES, "wrn-DEPTH-WIDTH"]))


@models.command()
def info(name: Name) -> None:
    """Show a model's card: how it was made, and its accuracy on clean and corrupted images.

    Example: `tapr models info cifar10-small`
    """
    from tapr.models import card

    for key, value in card(name).items():
        if isinstance(value, dict):
            typer.echo(f"{_words(key)}:")
            for inner, number in value.items():
                typer.echo(f"  {_words(inner):20} {_shown(inner, number)}")
        else:
            typer.echo(f"{_words(key):22} {_shown(key, value)}")


@models.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="The names of models to measure.  [default: all shipped models]",
            autocompletion=completing.models,
        ),
    ] = None,
) -> None:
    """Measure clean test accuracy again and compare it with the card; exit code 1 on a difference.

    Example: `tapr models verify cifar10-small`
    """
    from tapr import datasets
    from tapr.errors import ModelError
    from tapr.models import SHIPPED, card, load
    from tapr.runs.cards import ROUNDING, accuracy

    wrong = []
    for name in names or SHIPPED:
        facts = card(name)
        data = datasets.load(facts["dataset"], "test")
        measured = accuracy(load(name), data)
        typer.echo(
            f"{name}: {measured:.2%} of {len(data)} clean test images, "
            f"card {facts['clean_accuracy']:.2%}"
        )
        if abs(measured - facts["clean_accuracy"]) > ROUNDING:
            wrong.append(name)
    if wrong:
        raise ModelError(f"the measured accuracy differs from the card's: {', '.join(wrong)}")


@models.command("card")
def card_(
    model: Annotated[Path, typer.Argument(help="The `model.safetensors` that `tapr train` wrote.")],
) -> None:
    """Measure a trained model on clean and corrupted test images, and write its card.

    Example: `tapr models card runs/cifar10-small/model.safetensors`
    """
    from tapr import datasets
    from tapr.cli.progress import watching
    from tapr.models import card, load
    from tapr.runs.cards import VALIDATION, fill, measure

    name = card(model)["dataset"]
    data = datasets.load(name, "test")
    entry = datasets.DATASETS.get(name)
    validation = datasets.load(name, VALIDATION) if entry and VALIDATION in entry.splits else None
    numbers = {}
    with watching("measuring") as watch:
        for number in measure(load(model), data, validation):
            numbers[number.name] = number.accuracy
            watch.note(f"{number.name}: {number.accuracy:.2%}")
            watch.progress(number.done, number.total)
    fill(model, data, numbers)


def _words(key: str) -> str:
    return key.replace("_", " ")


def _shown(key: str, value: Any) -> str:
    return f"{value:.2%}" if isinstance(value, float) and key != "hours" else str(value)
