"""Watch an adapter: every prediction goes to a callback, with its losses and timings.

Run it with `python examples/observers.py`. TensorBoard, W&B and MLflow are a few lines each.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import torch

import tapr

Observer = Callable[[tapr.Prediction], None]


def numbers(prediction: tapr.Prediction) -> dict[str, float]:
    """What there is to plot of a batch."""
    times = {f"seconds/{name}": value for name, value in prediction.timings.items()}
    return {"steps": prediction.steps, "refused": prediction.refused, **prediction.terms, **times}


def tensorboard(folder: str) -> Observer:
    from torch.utils.tensorboard import SummaryWriter  # pip install tensorboard

    writer: Any = SummaryWriter(folder)
    batch = count()

    def write(prediction: tapr.Prediction) -> None:
        place = next(batch)
        for name, value in numbers(prediction).items():
            writer.add_scalar(name, value, place)

    return write


def wandb(run: Any) -> Observer:  # wandb.init(...)
    return lambda prediction: run.log(numbers(prediction))


def mlflow(module: Any) -> Observer:  # the module mlflow, within a run
    batch = count()
    return lambda prediction: module.log_metrics(numbers(prediction), step=next(batch))


if __name__ == "__main__":
    adapter = tapr.adapt(tapr.models.load("digits-small"), "tent")
    stop = adapter.observe(lambda prediction: print(numbers(prediction)))
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:200])  # handwritten ones
    for images in (digits.permute(0, 3, 1, 2).float() / 255).chunk(2):
        adapter(images)
    stop()
