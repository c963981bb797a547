"""`tapr train`: a source model from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import DATA, among

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tapr.runs.train import Step


@app.command()
def train(
    dataset: Annotated[
        str,
        typer.Argument(
            help="A data set with a train split, e.g. `cifar10`.", autocompletion=among(DATA)
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder for checkpoints, log, model and its card.")],
    model: str | None = typer.Option(None, help="The architecture, e.g. `small`, `wrn-40-2`."),
    epochs: int | None = typer.Option(None, min=1, help="Passes over the data."),
    seed: int = typer.Option(0, help="Decides weights, order and augmentation."),
    batch_size: int | None = typer.Option(None, min=1, help="Images in a batch."),
    learning_rate: float | None = typer.Option(None, help="The peak of the one-cycle schedule."),
    weight_decay: float | None = typer.Option(None, help="Of the optimiser."),
    label_smoothing: float | None = typer.Option(None, help="Off by default."),
    augment: str | None = typer.Option(None, help="`crop-flip`, `augmix` on top of it, or `none`."),
    weights: str | None = typer.Option(
        None, help="Begin with these, all but the head: a file, or `timm:NAME`."
    ),
    device: str = typer.Option("cpu", help="`cpu`, `cuda`, `cuda:1`, `mps`."),
    resume: bool = typer.Option(False, "--resume", help="Go on from the folder's checkpoint."),
) -> None:
    """Train a source model: nesterov SGD, one cycle, averaged weights.

    What is not given is the data set's own: `small-narrow`, 10 epochs, `none` for `digits`;
    `resnet-50` from timm's ImageNet weights, 10 epochs, batches of 64, rate 0.002 for `visda`;
    `small`, 40 epochs, batches of 128, rate 0.2, `crop-flip` else.

    The result is `OUT/model.safetensors`, which `tapr.models.load` takes, and its card.
    After an interruption the same command with `--resume` ends in the same weights, bit for bit.

    Example: `tapr train cifar10 --model small --epochs 40 --seed 0 --out runs/cifar10-small`
    """
    from tapr import datasets
    from tapr.errors import InputError
    from tapr.runs.train import CHECKPOINT, Training, recipe

    given = {
        "architecture": model,
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "label_smoothing": label_smoothing,
        "augment": augment,
        "weights": weights,
    }
    asked = {key: value for key, value in given.items() if value is not None}
    wanted = recipe(dataset, seed=seed, **asked)
    if dataset.startswith(datasets.FOLDER):
        raise InputError(f"expected a data set with a train split, got {dataset}, which has none")
    if (out / CHECKPOINT).exists() and not resume:
        raise InputError(f"{out} holds a checkpoint: go on with --resume, or choose another --out")
    training = Training(wanted, datasets.load(dataset, "train"), out, device)
    if resume:
        training.resume()
    _show(training.run(), wanted.epochs)
    training.save()
    typer.echo(f"wrote {out / 'model.safetensors'} and its card; `tapr models card` measures it")


def _show(steps: Iterator[Step], epochs: int) -> None:
    from rich.console import Console
    from rich.progress import Progress, TimeRemainingColumn

    console = Console()
    columns = (
        *Progress.get_default_columns()[:-1],
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=None)
        for step in steps:
            bar.update(task, completed=step.done, total=step.total)
            if step.epoch:
                record = step.epoch
                bar.console.print(
                    f"epoch {record['epoch']}/{epochs}  loss {record['loss']:.4f}  "
                    f"train accuracy {record['train_accuracy']:.2%}  "
                    f"{record['images_per_second']:.0f} images/s",
                    highlight=False,
                )
