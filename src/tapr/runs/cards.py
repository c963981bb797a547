"""The numbers of a model card: accuracy on clean and on corrupted test images, unadapted."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tapr import files
from tapr.corruptions import CORRUPTIONS, STANDARD, corrupt
from tapr.datasets import Dataset
from tapr.errors import InputError
from tapr.models import zoo
from tapr.streams.stream import as_tensor

CLEAN, VALIDATION, ROTATION = "clean", "validation", "rotation"
SEVERITY = 5
BATCH = 500
ROUNDING = 5e-4  # processors round differently: one image in thousands may change its class


class Measured(NamedTuple):
    """One accuracy of a model card, and how many of them are done."""

    name: str  # "clean", "validation", "rotation", or a corruption
    accuracy: float
    done: int
    total: int


@torch.inference_mode()
def accuracy(model: nn.Module, data: Dataset) -> float:
    """Return the share of the images that the model, in evaluation mode, classifies correctly."""
    if data.labels is None or not len(data):
        raise InputError(f"expected images with labels, got {len(data)} of {data.name} without")
    model.eval()
    correct = 0
    for first in range(0, len(data), BATCH):
        part = slice(first, first + BATCH)
        guesses = model(as_tensor(np.asarray(data.images[part]))).argmax(1).numpy()
        correct += int((guesses == data.labels[part]).sum())
    return correct / len(data)


@torch.inference_mode()
def rotation_accuracy(model: nn.Module, data: Dataset) -> float:
    """Return the share of turns that the rotation head recognises, over all four of each image."""
    model.eval()
    correct = 0
    for first in range(0, len(data), BATCH):
        images = as_tensor(np.asarray(data.images[first : first + BATCH]))
        for turns in range(4):
            said: Tensor = model.rotation(torch.rot90(images, turns, (2, 3)))  # type: ignore[operator]
            correct += int((said.argmax(1) == turns).sum())
    return correct / (4 * len(data))


def measure(
    model: nn.Module, data: Dataset, validation: Dataset | None = None
) -> Iterator[Measured]:
    """Measure clean accuracy, then accuracy under each corruption at severity 5, seed 0.

    Where the test images come from another domain, `validation` is the accuracy on the model's own.
    A rotation head is measured on the clean images.
    """
    clean: dict[str, Callable[[], float]] = {CLEAN: lambda: accuracy(model, data)}
    if validation is not None:
        clean[VALIDATION] = lambda: accuracy(model, validation)
    if callable(getattr(model, "rotation", None)):
        clean[ROTATION] = lambda: rotation_accuracy(model, data)
    total = len(clean) + len(CORRUPTIONS)
    for done, (name, measured) in enumerate(clean.items(), start=1):
        yield Measured(name, measured(), done, total)
    for done, name in enumerate(CORRUPTIONS, start=1 + len(clean)):
        images = corrupt(np.asarray(data.images[:]), name, SEVERITY, seed=0)
        yield Measured(name, accuracy(model, replace(data, images=images)), done, total)


def fill(path: Path, data: Dataset, numbers: dict[str, float]) -> None:
    """Write measured numbers into the card beside a model file."""
    card = zoo.card(path)
    corrupted = {name: numbers[name] for name in CORRUPTIONS}
    card["test_images"] = len(data)
    card["clean_accuracy"] = numbers[CLEAN]
    if VALIDATION in numbers:
        card["validation_accuracy"] = numbers[VALIDATION]
    if ROTATION in numbers:
        card["rotation_accuracy"] = numbers[ROTATION]
    card["severity_5_accuracy"] = corrupted
    card["severity_5_mean_of_15"] = round(sum(corrupted[name] for name in STANDARD) / 15, 5)
    with files.atomic(path.with_suffix(".json")) as part:
        part.write_text(json.dumps(card, indent=2) + "\n")
