"""Domains: the same images, clean or under one corruption, read a few at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapr.corruptions import CORRUPTIONS, STANDARD, corrupt
from tapr.datasets import PUBLISHED, Dataset, load
from tapr.errors import InputError

Numbers: TypeAlias = NDArray[np.int64]  # places of images in their data set
Subset: TypeAlias = int | Sequence[int] | Numbers | None

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Domain:
    """Images that share where they come from; nothing is read before a batch needs it."""

    name: str  # e.g. "fog-5", or "clean"
    origin: str  # e.g. "cifar10, generated with seed 0": for the record
    numbers: Numbers  # [N] which images of the data set
    labels: NDArray[np.int64] | None  # [N]
    classes: tuple[str, ...]
    read: Callable[[Numbers], NDArray[np.uint8]]  # numbers [B] -> images [B, H, W, C]

    def __len__(self) -> int:
        return len(self.numbers)


def clean(dataset: Dataset, subset: Subset = None) -> Domain:
    """The data set's images as they are."""
    return _domain("clean", dataset.name, dataset, subset, lambda numbers: dataset.images[numbers])


def generated(
    dataset: Dataset, corruption: str, severity: int, subset: Subset = None, seed: int = 0
) -> Domain:
    """The data set's images under a corruption that is made here, batch by batch."""
    _check([corruption], [severity])

    def read(numbers: Numbers) -> NDArray[np.uint8]:
        images = np.asarray(dataset.images[numbers])
        return corrupt(images, corruption, severity, seed=seed, indices=numbers)

    origin = f"{dataset.name}, generated with seed {seed}"
    return _domain(f"{corruption}-{severity}", origin, dataset, subset, read)


def published(name: str, corruption: str, severity: int, subset: Subset = None) -> Domain:
    """The published images of `name` ("cifar10c" or "cifar100c"), mapped from the user's files."""
    dataset = load(name, split=f"{corruption}-{severity}")
    return _domain(
        f"{corruption}-{severity}",
        f"{name}, read from files",
        dataset,
        subset,
        lambda numbers: dataset.images[numbers],
    )


def corrupted(
    data: str | Dataset,
    corruptions: Sequence[str] = STANDARD,
    severities: Sequence[int] = (5,),
    subset: Subset = None,
    seed: int = 0,
) -> list[Domain]:
    """A domain for each corruption at each severity, in that order.

    "cifar10c" and "cifar100c" use the published files when all that is asked for is here, and
    else corrupt the clean test images; any other data is corrupted here. `origin` says which.
    """
    _check(corruptions, severities)
    pairs = [(corruption, severity) for corruption in corruptions for severity in severities]
    entry = PUBLISHED.get(data) if isinstance(data, str) else None
    if entry is not None:
        if entry.has(corruptions):
            return [published(entry.name, *pair, subset) for pair in pairs]
        data = entry.clean
    dataset = load(data) if isinstance(data, str) else data
    return [generated(dataset, *pair, subset, seed) for pair in pairs]


def choose(dataset: Dataset, subset: Subset) -> Numbers:
    """The numbers of the chosen images: all, so many, or exactly these.

    So many are the first ones, as in other benchmarks; when the data is listed class by class
    they are spread evenly over it, since the first ones would be of one class.
    """
    total = len(dataset)
    if subset is None:
        return np.arange(total)
    if isinstance(subset, int):
        if not 1 <= subset <= total:
            raise InputError(f"expected 1 to {total} images of {dataset.name}, got {subset}")
        labels = dataset.labels
        listed_by_class = labels is not None and bool((np.diff(labels) >= 0).all())
        return np.arange(subset) * total // subset if listed_by_class else np.arange(subset)
    numbers = np.asarray(subset)
    if numbers.ndim != 1 or not len(numbers) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError("expected the subset as a list of image numbers")
    if numbers.min() < 0 or numbers.max() >= total:
        raise InputError(
            f"expected image numbers from 0 to {total - 1}, got {numbers.min()} to {numbers.max()}"
        )
    return numbers.astype(np.int64)


def _domain(
    name: str,
    origin: str,
    dataset: Dataset,
    subset: Subset,
    read: Callable[[Numbers], NDArray[np.uint8]],
) -> Domain:
    numbers = choose(dataset, subset)
    labels = None if dataset.labels is None else dataset.labels[numbers]
    return Domain(name, origin, numbers, labels, dataset.classes, read)


def _check(corruptions: Sequence[str], severities: Sequence[int]) -> None:
    for name in corruptions:
        CORRUPTIONS[name]
    for severity in severities:
        if isinstance(severity, bool) or severity not in SEVERITIES:
            raise InputError(f"expected a severity from 1 to 5, got {severity!r}")
    if not corruptions or not severities:
        raise InputError("expected at least one corruption and one severity, got none")
