"""`tapr doctor`: the pre-flight report on a model."""

import typer

from tapr.cli import app
from tapr.cli.completing import METHODS, among, models
from tapr.cli.shared import Mean, Std, numbers_of


@app.command()
def doctor(
    model: str = typer.Argument(
        help="A shipped model's name, a checkpoint's path, or `module:function` returning yours.",
        autocompletion=models,
    ),
    size: str = typer.Option(
        "3x32x32", help="The size of the trial images: channels x height x width."
    ),
    batch_size: int = typer.Option(16, min=1, help="The number of trial images."),
    method: str = typer.Option(
        "steady", help="The method that the model is checked for.", autocompletion=among(METHODS)
    ),
    mean: Mean = None,
    std: Std = None,
) -> None:
    """Report what tapr finds in a model, what it would adapt, what that costs, and what will fail.

    The trial images are random noise. They show that the model runs, not how well it predicts.

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
    asked = {"mean": numbers_of("--mean", mean), "std": numbers_of("--std", std)}
    quiet = {"guard": "off"}  # it would warn of noise
    report = check(find_model(model), images, method, **asked, **quiet)
    typer.echo(report)
    raise typer.Exit(0 if report.ok else 1)
