"""Domains: the same images, clean or under one corruption, read a few at a time."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapr import names
from tapr.corruptions import CORRUPTIONS, STANDARD, corrupt
from tapr.datasets import PUBLISHED, Dataset, as_dataset, load
from tapr.datasets.lazy import LazyImages
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError, InputError
from tapr.registry import Registry
from tapr.rng import derive

_log = logging.getLogger("tapr.streams")
Numbers: TypeAlias = NDArray[np.int64]  # places of images in their data set
Subset: TypeAlias = int | Sequence[int] | Numbers | None

SEVERITIES = (1, 2, 3, 4, 5)
BLANKS: Registry[str] = Registry("kind of blank images", {kind: kind for kind in names.BLANKS})


@dataclass(frozen=True)
class Origin:
    """Where a domain's images come from."""

    dataset: str
    made: Literal["clean", "generated", "published", "blank"] = "clean"
    seed: int | None = None  # of generated corruptions

    def __str__(self) -> str:
        return names.origin(self.dataset, self.made, self.seed)


@dataclass(frozen=True)
class Domain:
    """Images that share where they come from; nothing is read before a batch needs it."""

    origin: Origin
    numbers: Numbers  # [N] which images of the data set
    labels: NDArray[np.int64] | None  # [N]
    classes: tuple[str, ...]
    read: Callable[[Numbers], NDArray[np.uint8]]  # numbers [B] -> images [B, H, W, C]
    corruption: str | None = None
    severity: int | None = None

    @property
    def name(self) -> str:
        """The corruption and its severity, e.g. "fog-5"; "clean" without one."""
        if self.origin.made == "blank":
            return self.origin.dataset
        return names.CLEAN if self.corruption is None else f"{self.corruption}-{self.severity}"

    def __len__(self) -> int:
        return len(self.numbers)


def clean(dataset: Dataset, subset: Subset = None) -> Domain:
    """The data set's images as they are."""
    dataset = as_dataset(dataset)
    return _domain(Origin(dataset.name), dataset, subset, lambda numbers: dataset.images[numbers])


def generated(
    dataset: Dataset, corruption: str, severity: int, subset: Subset = None, seed: int = 0
) -> Domain:
    """The data set's images under a corruption that is made here, batch by batch."""
    _check([corruption], [severity])
    dataset = as_dataset(dataset)

    def read(numbers: Numbers) -> NDArray[np.uint8]:
        images = np.asarray(dataset.images[numbers])
        return corrupt(images, corruption, severity, seed=seed, indices=numbers)

    origin = Origin(dataset.name, "generated", seed)
    return _domain(origin, dataset, subset, read, corruption, severity)


def published(
    name: str,
    corruption: str,
    severity: int,
    subset: Subset = None,
    size: Preprocessing | None = None,
) -> Domain:
    """The published images of `name` ("cifar10c", "imagenet-c", ...), in the user's files."""
    dataset = load(name, split=f"{corruption}-{severity}", size=size)
    origin = Origin(name, "published")
    return _domain(
        origin, dataset, subset, lambda numbers: dataset.images[numbers], corruption, severity
    )


def corrupted(
    data: str | Dataset,
    corruptions: Sequence[str] = STANDARD,
    severities: Sequence[int] = (5,),
    subset: Subset = None,
    seed: int = 0,
    size: Preprocessing | None = None,
) -> list[Domain]:
    """A domain for each corruption at each severity, in that order; "clean" is one more domain.

    "cifar10c", "cifar100c" and "imagenet-c" use the published files when all that is asked for is
    here, and else corrupt the clean test images; any other data is corrupted here. `origin` says
    which. `size` is how images of sets of folders are resized and cropped.
    """
    if not corruptions or not severities:
        raise InputError("expected at least one corruption and one severity, got none")
    shifts = [name for name in corruptions if name != names.CLEAN]
    _check(shifts, severities)
    entry = PUBLISHED.get(data) if isinstance(data, str) else None
    here = entry is not None and entry.has(shifts)

    plain: Any = data
    if isinstance(data, str) and not (here and len(shifts) == len(corruptions)):
        plain = load(entry.clean if entry else data, size=size)
    domains: list[Domain] = []
    for name in corruptions:
        if name == names.CLEAN:
            domains.append(clean(plain, subset))
        elif entry is not None and here:
            domains += [published(entry.name, name, level, subset, size) for level in severities]
        else:
            domains += [generated(plain, name, level, subset, seed) for level in severities]
    return domains


def blank(kind: str, like: Domain, count: int, seed: int = 0) -> Domain:
    """Blank images of the size of another domain's: "black", "constant" (each of one colour) or
    "noise". They have no labels.
    """
    BLANKS.check(kind)
    key = derive(seed, "blank", kind)

    def read(numbers: Numbers) -> NDArray[np.uint8]:
        shape = like.read(like.numbers[:1]).shape[1:]
        drawn = {"black": 0, "constant": shape[-1], "noise": shape}[kind]
        images = np.zeros((len(numbers), *shape), np.uint8)
        for image, number in zip(images, numbers, strict=True):
            if drawn:
                image[:] = np.random.default_rng([key, number]).integers(0, 256, drawn, np.uint8)
        return images

    return Domain(Origin(kind, "blank"), np.arange(count), None, like.classes, read)


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
    origin: Origin,
    dataset: Dataset,
    subset: Subset,
    read: Callable[[Numbers], NDArray[np.uint8]],
    corruption: str | None = None,
    severity: int | None = None,
) -> Domain:
    numbers = _readable(dataset, choose(dataset, subset))
    labels = None if dataset.labels is None else dataset.labels[numbers]
    return Domain(origin, numbers, labels, dataset.classes, read, corruption, severity)


def _readable(dataset: Dataset, numbers: Numbers) -> Numbers:
    """Without the files that cannot be read, where nobody has looked at them before."""
    if dataset.checked or not isinstance(dataset.images, LazyImages):
        return numbers
    bad = dataset.images.unreadable(numbers)
    for number, why in bad.items():
        _log.warning("left out: %s of %s: %s", dataset.images.names[number], dataset.name, why)
    if len(bad) == len(numbers):
        raise DataError(f"none of the {len(numbers)} images of {dataset.name} can be read")
    return numbers[~np.isin(numbers, list(bad))] if bad else numbers


def _check(corruptions: Sequence[str], severities: Sequence[int]) -> None:
    for name in corruptions:
        CORRUPTIONS[name]
    for severity in severities:
        if isinstance(severity, bool) or severity not in SEVERITIES:
            raise InputError(f"expected a severity from 1 to 5, got {severity!r}")
