"""The order of the images within a segment of a stream: labels [N] -> a permutation [N]."""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapr.errors import InputError
from tapr.registry import Registry

Numbers: TypeAlias = NDArray[np.int64]
Order: TypeAlias = Callable[[Numbers | None, int, np.random.Generator], Numbers]


def listed(labels: Numbers | None, count: int, random: np.random.Generator) -> Numbers:
    """As the data set lists them."""
    return np.arange(count)


def shuffled(labels: Numbers | None, count: int, random: np.random.Generator) -> Numbers:
    """In a random order."""
    return random.permutation(count)


def by_label(labels: Numbers | None, count: int, random: np.random.Generator) -> Numbers:
    """Class after class, in a random order within each."""
    labels = _needed(labels)
    order = random.permutation(count)
    return order[np.argsort(labels[order], kind="stable")]


def dirichlet(
    labels: Numbers | None,
    count: int,
    random: np.random.Generator,
    *,
    concentration: float = 0.1,
) -> Numbers:
    """Skewed: each class crowds into some stretches of the stream.

    Time is cut into as many slots as there are classes, and each class spreads over them by a
    Dirichlet draw: a small concentration comes close to `by_label`, a large one to `shuffled`.
    """
    labels = _needed(labels)
    if not concentration > 0:
        raise InputError(f"expected a concentration above 0, got {concentration}")
    classes = np.unique(labels)
    slots: list[list[Numbers]] = [[] for _ in classes]
    for label in classes:
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(len(slots), concentration))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    return np.concatenate([random.permutation(np.concatenate(slot)) for slot in slots])


ORDERS: Registry[Order] = Registry(
    "order",
    {"listed": listed, "shuffled": shuffled, "sorted": by_label, "dirichlet": dirichlet},
)


def _needed(labels: Numbers | None) -> Numbers:
    if labels is None:
        raise InputError("this order needs labels, and the images have none")
    return labels
