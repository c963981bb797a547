"""`tapr train`: a source model from scratch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tapr.cli import app
from tapr.cli.completing import DATA, among
from tapr.cli.shared import Device

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tapr.runs.train import Step


@app.command()
def train(
    dataset: Annotated[
        str,
        typer.Argument(
            help="The name of a data set with a train split, e.g. `cifar10`.",
            autocompletion=among(DATA),
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The folder for the checkpoint, the log, the model and its card.")
    ],
    model: str | None = typer.Option(
        None, help="The architecture, e.g. `small` or `wrn-40-2`.  [default: the data set's]"
    ),
    rotation: bool = typer.Option(
        False,
        "--rotation",
        help="Give the model a second head, which learns along with the first by how many quarter "
        "turns an image is rotated: the method `ttt` needs it.",
    ),
    epochs: int | None = typer.Option(
        None,
        min=1,
        help="The number of passes over the training images.  [default: the data set's]",
    ),
    seed: int = typer.Option(0, help="The seed of initial weights, image order and augmentation."),
    batch_size: int | None = typer.Option(
        None, min=1, help="The number of images in a batch.  [default: the data set's]"
    ),
    learning_rate: float | None = typer.Option(
        None, help="The peak learning rate of the one-cycle schedule.  [default: the data set's]"
    ),
    weight_decay: float | None = typer.Option(
        None, help="The optimiser's weight decay, on kernels and matrices.  [default: 0.0005]"
    ),
    label_smoothing: float | None = typer.Option(
        None, help="The label smoothing, from 0 to below 1.  [default: 0]"
    ),
    augment: str | None = typer.Option(
        None,
        help="`none`, `crop-flip`, or `augmix` on top of that.  [default: the data set's]",
    ),
    weights: str | None = typer.Option(
        None,
        help="Weights to begin with, except for the heads: a name, a file, or `timm:NAME`.  "
        "[default: the data set's, or random]",
    ),
    device: Device = "auto",
    resume: bool = typer.Option(
        False, "--resume", help="Resume from the checkpoint in the folder."
    ),
) -> None:
    """Train a source model: SGD with Nesterov momentum, a one-cycle schedule, averaged weights.

    Defaults depend on the data set. `digits`: `small-narrow`, 10 epochs, no augmentation.
    `visda`: `resnet-50` from timm's ImageNet weights, 10 epochs, batches of 64, learning rate
    0.002. Otherwise: `small`, 40 epochs, batches of 128, learning rate 0.2, `crop-flip`.

    The result is `OUT/model.safetensors`, which `tapr.models.load` takes, and its card. With
    `--rotation` it has a second head, which the method `ttt` needs, and a step costs twice as much.
    After an interruption, the same command with `--resume` arrives at the same weights, bit for
    bit.

    Example: `tapr train cifar10 --model small --epochs 40 --seed 0 --out runs/cifar10-small`
    """
    from dataclasses import replace

    from tapr import datasets
    from tapr.errors import InputError
    from tapr.models.architectures import with_rotation
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
    if rotation:
        wanted = replace(wanted, architecture=with_rotation(wanted.architecture))
    if dataset.startswith(datasets.FOLDER):
        raise InputError(f"expected a data set with a train split, got {dataset}, which has none")
    if (out / CHECKPOINT).exists() and not resume:
        raise InputError(
            f"{out} holds a checkpoint: resume it with --resume, or choose another --out"
        )
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
                turns = record.get("rotation_accuracy")
                bar.console.print(
                    f"epoch {record['epoch']}/{epochs}  loss {record['loss']:.4f}  "
                    f"train accuracy {record['train_accuracy']:.2%}  "
                    + ("" if turns is None else f"rotation accuracy {turns:.2%}  ")
                    + f"{record['images_per_second']:.0f} images/s",
                    highlight=False,
                )
