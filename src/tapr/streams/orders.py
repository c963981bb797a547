"""The order of the images within a segment of a stream: labels [N] -> places [M].

Every order shows every image once, so that two orders differ in nothing but the order; in a burst
each image stays for a while.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tapr.errors import InputError
from tapr.registry import Registry

Numbers: TypeAlias = NDArray[np.int64]
Order: TypeAlias = Callable[[Numbers | None, int, np.random.Generator], Numbers]

DELTA = 0.1  # what the field uses
MOST_SLOTS = 100


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
    concentration: float = DELTA,
) -> Numbers:
    """Skewed: the images of a class come close together.

    Time is cut into as many slots as there are classes, and each class spreads over them by a
    Dirichlet draw: a small concentration comes close to `by_label`, a large one to `shuffled`.
    """
    labels = _needed(labels)
    _check(concentration)
    classes = np.unique(labels)
    slots: list[list[Numbers]] = [[] for _ in classes]
    for label in classes:
        members = random.permutation(np.flatnonzero(labels == label))
        shares = random.dirichlet(np.full(len(slots), concentration))
        cuts = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(int)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    return np.concatenate([random.permutation(np.concatenate(slot)) for slot in slots])


def correlated(
    labels: Numbers | None,
    count: int,
    random: np.random.Generator,
    *,
    concentration: float = DELTA,
) -> Numbers:
    """Correlated as RoTTA defines it: as `dirichlet`, but within a slot class after class.

    There are at most a hundred slots. Classes come in a random order within a slot, and the images
    of a class as the data set lists them.
    """
    labels = _needed(labels)
    _check(concentration)
    classes = np.unique(labels)
    slots: list[list[Numbers]] = [[] for _ in range(min(len(classes), MOST_SLOTS))]
    shares = random.dirichlet(np.full(len(slots), concentration), size=len(classes))
    for label, share in zip(classes, shares, strict=True):
        members = np.flatnonzero(labels == label)
        cuts = (np.cumsum(share)[:-1] * len(members)).astype(int)
        for slot, part in zip(slots, np.split(members, cuts), strict=True):
            slot.append(part)
    return np.concatenate(
        [slot[place] for slot in slots for place in random.permutation(len(slot))]
    )


def shift(
    labels: Numbers | None, count: int, random: np.random.Generator, *, at: float = 0.5
) -> Numbers:
    """Some classes first, from the share `at` of the images on the others; shuffled in each part.

    Which classes come first is drawn; the change comes as close to `at` as whole classes allow.
    """
    labels = _needed(labels)
    if not 0 < at < 1:
        raise InputError(f"expected the labels to shift between 0 and 1 of the images, got {at}")
    classes, sizes = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise InputError("labels can only shift among two classes or more, got one")
    drawn = random.permutation(len(classes))
    ends = np.cumsum(sizes[drawn])[:-1]  # where the change is after one class, two, ...
    first = classes[drawn[: np.abs(ends - at * count).argmin() + 1]]
    order = random.permutation(count)
    early = np.isin(labels[order], first)
    return np.concatenate([order[early], order[~early]])


ORDERS: Registry[Order] = Registry(
    "order",
    {
        "listed": listed,
        "shuffled": shuffled,
        "sorted": by_label,
        "dirichlet": dirichlet,
        "correlated": correlated,
        "shift": shift,
    },
)


def made(
    name: str, *, delta: float | None = None, shift_at: float | None = None, burst: int = 1
) -> Order:
    """The order of this name with its parameters; each image comes `burst` times in a row.

    `delta` is the concentration of `dirichlet` and `correlated`, `shift_at` the place of `shift`;
    any other order refuses them.
    """
    order = ORDERS[name]
    given: dict[str, Any] = {}
    if delta is not None:
        _belongs("delta", name, ("dirichlet", "correlated"))
        given["concentration"] = delta
    if shift_at is not None:
        _belongs("shift_at", name, ("shift",))
        given["at"] = shift_at
    if burst < 1:
        raise InputError(f"expected bursts of at least 1, got {burst}")
    chosen: Order = partial(order, **given) if given else order
    return chosen if burst == 1 else partial(_repeated, chosen, burst)


def _repeated(
    order: Order, burst: int, labels: Numbers | None, count: int, random: np.random.Generator
) -> Numbers:
    return np.repeat(order(labels, count, random), burst)


def _belongs(parameter: str, name: str, orders: tuple[str, ...]) -> None:
    if name not in orders:
        raise InputError(f"{parameter} belongs to the order {' and '.join(orders)}, got {name}")


def _check(concentration: float) -> None:
    if not 0 < concentration < np.inf:
        raise InputError(f"expected a concentration above 0, got {concentration}")


def _needed(labels: Numbers | None) -> Numbers:
    if labels is None:
        raise InputError("this order needs labels, and the images have none")
    return labels
