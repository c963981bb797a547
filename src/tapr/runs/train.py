"""Train a source model from scratch, on any device; an interrupted training resumes exactly."""

from __future__ import annotations

import copy
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr import files, rng
from tapr.datasets import DATASETS, Dataset
from tapr.errors import InputError, StateError
from tapr.methods.ttt import Rotated
from tapr.models import architectures, checkpoint, zoo
from tapr.models.architectures import ROTATION
from tapr.models.inputs import Normalize
from tapr.runs.device import usable
from tapr.runs.train_views import AUGMENTS

FORMAT = "tapr-training-1"
MOMENTUM = 0.9
WARM_UP = 0.15  # the share of the steps in which the learning rate rises
AVERAGING = 0.999  # the share of the averaged weights that a step keeps, in a long training
SAMPLE = 5000 * 32 * 32  # pixels that the input normalisation is measured on
CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


@dataclass(frozen=True)
class Recipe:
    """The settings of a training; with data and number of threads, they determine the weights."""

    dataset: str
    architecture: str = "small"
    epochs: int = 40
    seed: int = 0
    batch_size: int = 128
    learning_rate: float = 0.2
    weight_decay: float = 5e-4
    label_smoothing: float = 0.0
    augment: str = "crop-flip"
    weights: str | None = None  # to begin with, all but the head: a file, or "timm:NAME"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "learning_rate"):
            if getattr(self, name) <= 0:
                raise InputError(f"expected {name} above 0, got {getattr(self, name)}")
        if not 0 <= self.label_smoothing < 1:
            raise InputError(f"expected label_smoothing in [0, 1), got {self.label_smoothing}")
        if self.weight_decay < 0:
            raise InputError(f"expected weight_decay of at least 0, got {self.weight_decay}")
        AUGMENTS[self.augment]  # an unknown name fails here, before any work

    def command(self) -> str:
        """Return the command line that repeats the training."""
        return (
            f"tapr train {self.dataset} --model {self.architecture.removesuffix(ROTATION)} "
            + ("--rotation " if self.architecture.endswith(ROTATION) else "")
            + f"--epochs {self.epochs} "
            f"--seed {self.seed} --batch-size {self.batch_size} "
            f"--learning-rate {self.learning_rate:g} --weight-decay {self.weight_decay:g} "
            f"--label-smoothing {self.label_smoothing:g} --augment {self.augment}"
            + (f" --weights {self.weights}" if self.weights else "")
        )


def recipe(dataset: str, **given: Any) -> Recipe:
    """Return the recipe in the data set's entry; the given values replace its own.

    >>> recipe("digits", epochs=3).architecture
    'small-narrow'
    """
    entry = DATASETS.get(dataset)
    usual = dict(entry.training) if entry else {}
    if given.get("architecture", usual.get("architecture")) != usual.get("architecture"):
        usual.pop("weights", None)  # they fit no other network
    return Recipe(dataset, **{**usual, **given})


class Step(NamedTuple):
    """Progress of a training in steps; `epoch` is that epoch's record, after its last step."""

    done: int
    total: int
    epoch: dict[str, float] | None = None


class Training:
    """A model in training: iterate `run()`; `average` holds the weights to keep.

    A model with a rotation head learns both tasks in every step, as in Sun et al. (2020): the loss
    is the sum of the classifier's and of the cross-entropy of the turns, on the same images, turned
    at random as in TTT.
    """

    def __init__(
        self, recipe: Recipe, data: Dataset, folder: Path, device: torch.device | str = "cpu"
    ) -> None:
        if data.labels is None or len(data) < recipe.batch_size:
            raise InputError(
                f"expected at least one batch of {recipe.batch_size} labelled images, "
                f"got {len(data)} of {data.name}"
            )
        self.recipe, self.data, self.folder = recipe, data, folder
        self.device = usable(device)
        self.labels = torch.from_numpy(data.labels)
        self.model = self._fresh().to(memory_format=torch.channels_last).to(self.device)  # type: ignore[call-overload]
        self.average = copy.deepcopy(self.model).eval()
        self.optimizer = _optimizer(self.model, recipe)
        self.per_epoch = len(data) // recipe.batch_size
        self.rotated = Rotated(1) if callable(getattr(self.model, "rotation", None)) else None
        self.history: list[dict[str, float]] = []

    def run(self) -> Iterator[Step]:
        """Train to the last epoch; each epoch writes a checkpoint and the log."""
        total = self.recipe.epochs * self.per_epoch
        for epoch in range(len(self.history), self.recipe.epochs):
            started = time.perf_counter()
            generator = rng.generator(self.recipe.seed, "train", epoch)
            order = torch.randperm(len(self.data), generator=generator)
            sums = Counter[str]()
            for step in range(epoch * self.per_epoch, (epoch + 1) * self.per_epoch):
                first = (step % self.per_epoch) * self.recipe.batch_size
                index = order[first : first + self.recipe.batch_size]
                self._set_rate(step, total)
                sums.update(self._step(index, generator))
                yield Step(step + 1, total)
            seconds = time.perf_counter() - started
            self.history.append(self._record(epoch, sums, seconds))
            self._write()
            yield Step((epoch + 1) * self.per_epoch, total, self.history[-1])

    def resume(self) -> None:
        """Resume from the folder's checkpoint; refuse one of another recipe."""
        saved = _read(self.folder / CHECKPOINT)
        mine = asdict(self.recipe)
        other = [key for key in mine if saved["recipe"].get(key) != mine[key]]
        if other:
            differences = ", ".join(
                f"{key} {saved['recipe'].get(key)!r} there, {mine[key]!r} here" for key in other
            )
            raise StateError(
                f"the checkpoint in {self.folder} was made with other settings: {differences}"
            )
        self.model.load_state_dict(saved["model"])
        self.average.load_state_dict(saved["average"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.history = saved["history"]

    def save(self) -> Path:
        """Write the averaged weights, and a card that says how they were made."""
        path = self.folder / "model.safetensors"
        checkpoint.save(self.average, path, self.recipe.architecture)
        card = {
            "dataset": self.recipe.dataset,
            "architecture": self.recipe.architecture,
            "classes": len(self.data.classes),
            "input_size": [3, *self.data.images.shape[1:3]],
            "training_images": len(self.data),
            "epochs": self.recipe.epochs,
            "seed": self.recipe.seed,
            "augment": self.recipe.augment,
            **({"begun_with": self.recipe.weights} if self.recipe.weights else {}),
            "command": self.recipe.command(),
            "hours": round(sum(record["seconds"] for record in self.history) / 3600, 2),
            "threads": torch.get_num_threads(),
            "device": self.device.type,
            "torch": torch.__version__,
        }
        with files.atomic(path.with_suffix(".json")) as part:
            part.write_text(json.dumps(card, indent=2) + "\n")
        return path

    def _fresh(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(rng.derive(self.recipe.seed, "weights"))
            model = architectures.build(self.recipe.architecture, len(self.data.classes))
        if self.recipe.weights:
            zoo.start_from(model, self.recipe.weights, self.recipe.architecture)
            return model
        count = max(100, SAMPLE // math.prod(self.data.images.shape[1:3]))
        order = torch.randperm(len(self.data), generator=rng.generator(0, "normalize"))
        pixels = torch.from_numpy(np.asarray(self.data.images[order[:count].numpy()]))
        std, mean = torch.std_mean(pixels.double() / 255, (0, 1, 2))
        model.normalize = Normalize(mean.tolist(), std.clamp(min=1 / 255).tolist())
        return model

    def _set_rate(self, step: int, total: int) -> None:
        """Set the learning rate of one cycle: linearly up from zero, then linearly down to zero."""
        rise = WARM_UP * total
        share = min((step + 1) / rise, (total - step) / (total - rise))
        for group in self.optimizer.param_groups:
            group["lr"] = share * self.recipe.learning_rate

    def _step(self, index: Tensor, generator: torch.Generator) -> dict[str, float]:
        images = torch.from_numpy(np.asarray(self.data.images[index.numpy()])).to(self.device)
        labels = self.labels[index].to(self.device)
        self.model.train()
        loss, logits = AUGMENTS[self.recipe.augment](
            self.model, images, labels, self.recipe.label_smoothing, generator
        )
        made = {"train_accuracy": _share(logits, labels)}
        if self.rotated:
            turned = self.rotated(images.permute(0, 3, 1, 2).float() / 255, generator)
            turns = self.rotated.labels.to(self.device)
            said: Tensor = self.model.rotation(turned)
            loss = loss + functional.cross_entropy(said, turns)
            made["rotation_accuracy"] = _share(said, turns)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self._average_in()
        return {"loss": loss.item(), **made}

    @torch.no_grad()
    def _average_in(self) -> None:
        weight = max(1 - AVERAGING, 10 / (self.recipe.epochs * self.per_epoch))
        for mean, value in zip(
            self.average.state_dict().values(), self.model.state_dict().values(), strict=True
        ):
            if mean.is_floating_point():
                mean.lerp_(value, weight)
            else:
                mean.copy_(value)

    def _record(self, epoch: int, sums: Mapping[str, float], seconds: float) -> dict[str, float]:
        images = self.per_epoch * self.recipe.batch_size
        return {
            "epoch": epoch + 1,
            **{name: round(value / self.per_epoch, 5) for name, value in sums.items()},
            "seconds": round(seconds, 1),
            "images_per_second": round(images / seconds, 1),
        }

    def _write(self) -> None:
        state = {
            "format": FORMAT,
            "recipe": asdict(self.recipe),
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "history": self.history,
        }
        with files.atomic(self.folder / CHECKPOINT) as part:
            torch.save(state, part)
        with files.atomic(self.folder / LOG) as part:
            part.write_text("".join(json.dumps(record) + "\n" for record in self.history))


def _optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    kernels = [value for value in model.parameters() if value.ndim > 1]
    others = [value for value in model.parameters() if value.ndim <= 1]
    groups = [
        {"params": kernels, "weight_decay": recipe.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=recipe.learning_rate, momentum=MOMENTUM, nesterov=True)


def _share(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(1) == labels).float().mean().item()


def _read(path: Path) -> dict[str, Any]:
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise StateError(f"there is nothing to resume: {path} does not exist") from error
    except Exception as error:  # torch raises many kinds on a damaged file
        raise StateError(f"cannot read {path}: it is damaged or not a checkpoint") from error
    if not isinstance(saved, dict) or saved.get("format") != FORMAT:
        raise StateError(f"expected a checkpoint of tapr train in {path}, got something else")
    return saved
