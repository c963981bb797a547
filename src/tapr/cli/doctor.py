"""`tapr doctor`: the pre-flight report on a model."""

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, among, models


@app.command()
def doctor(
    model: str = typer.Argument(
        help="A shipped model's name, a checkpoint's path, or `module:function` returning yours.",
        autocompletion=models,
    ),
    size: str = typer.Option("3x32x32", help="Channels x height x width to try it with."),
    batch_size: int = typer.Option(16, min=1, help="Images in the trial batch."),
    method: str = typer.Option(
        "steady", help="The method to check it for.", autocompletion=among(METHODS)
    ),
) -> None:
    """Say what tapr finds in a model, what it would adapt, what that costs and what will not work.

    The trial images are uniform noise: they show that the model runs, not how well it does.

    Example: `tapr doctor cifar10-small --method tent`
    """
    import torch

    from tapr.errors import InputError
    from tapr.methods import find_model
    from tapr.rng import generator
    from tapr.runs.doctor import check

    try:
        channels, height, width = (int(part) for part in size.lower().split("x"))
    except ValueError as error:
        raise InputError(f"expected a size like 3x32x32, got {size!r}") from error
    images = torch.rand(batch_size, channels, height, width, generator=generator(0, "doctor"))
    report = check(find_model(model), images, method)
    typer.echo(report)
    raise typer.Exit(0 if report.ok else 1)
