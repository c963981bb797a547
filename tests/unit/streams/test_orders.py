"""The non-iid orders are what they claim to be, and all are permutations."""

from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from tapr.errors import InputError, UnknownNameError
from tapr.streams.orders import (
    ORDERS,
    Order,
    by_label,
    correlated,
    dirichlet,
    listed,
    made,
    shift,
    shuffled,
)

CLASSES, COUNT, WINDOW = 10, 2000, 50
LABELS = np.random.default_rng(0).integers(0, CLASSES, COUNT)


def _order(order: Order, seed: int = 0) -> NDArray[np.int64]:
    return order(LABELS, COUNT, np.random.default_rng(seed))


def _classes_in_use(order: NDArray[np.int64]) -> float:
    """The mean over windows of exp(entropy of the labels): how many classes a batch holds."""
    windows = LABELS[order].reshape(-1, WINDOW)
    shares = np.stack([(windows == label).mean(axis=1) for label in range(CLASSES)])
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=0)
    return float(np.exp(entropy).mean())


@pytest.mark.parametrize("name", ORDERS)
def test_is_a_seeded_permutation(name: str) -> None:
    order = _order(ORDERS[name])
    assert sorted(order) == list(range(COUNT))
    np.testing.assert_array_equal(order, _order(ORDERS[name]))
    if name != "listed":
        assert (order != _order(ORDERS[name], seed=1)).any()


def test_listed_and_shuffled() -> None:
    np.testing.assert_array_equal(_order(listed), np.arange(COUNT))
    assert 8.5 < _classes_in_use(_order(shuffled)) < 10


def test_by_label_shows_one_class_after_another() -> None:
    order = _order(by_label)
    assert (np.diff(LABELS[order]) >= 0).all()
    first = order[LABELS[order] == 0]
    assert (np.diff(first) < 0).any(), "within a class the order is random"


def test_a_small_concentration_crowds_the_classes() -> None:
    in_use = [
        np.mean(
            [
                _classes_in_use(_order(partial(dirichlet, concentration=concentration), seed))
                for seed in range(5)
            ]
        )
        for concentration in (0.01, 0.1, 1.0, 100.0)
    ]
    assert in_use == sorted(in_use)
    assert in_use[0] < 2.5
    assert in_use[1] < 4.5
    assert abs(in_use[3] - _classes_in_use(_order(shuffled))) < 0.3


def test_a_dirichlet_class_gathers_in_few_places() -> None:
    """Half of a class's images lie within a fifth of the stream, unlike in a shuffled one."""
    places = np.argsort(_order(dirichlet)) / COUNT
    for label in range(CLASSES):
        mine = np.sort(places[label == LABELS])
        half = len(mine) // 2
        assert (mine[half:] - mine[:-half]).min() < 0.2


def test_correlated_is_slots_of_whole_runs_of_a_class() -> None:
    """RoTTA's: as many slots as classes, each class at most once in a slot, without a mixture."""
    labels = LABELS[_order(correlated)]
    changes = int((np.diff(labels) != 0).sum())
    assert changes < CLASSES * CLASSES
    assert changes > CLASSES, "a class comes back in several slots"
    assert _classes_in_use(_order(correlated)) < _classes_in_use(_order(dirichlet))
    members = _order(correlated)[LABELS[_order(correlated)] == 3]
    assert (np.diff(members) > 0).all(), "the images of a class as listed"


def test_correlated_has_at_most_a_hundred_slots() -> None:
    labels = np.repeat(np.arange(300), 4)
    even = correlated(labels, 1200, np.random.default_rng(0), concentration=1e6)
    changes = (np.diff(labels[even]) != 0).sum()
    assert sorted(even) == list(range(1200))
    assert changes <= 1200
    assert len({tuple(part) for part in labels[even].reshape(100, -1)}) == 100


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_labels_shift_where_they_are_told_to(at: float) -> None:
    labels = LABELS[_order(made("shift", shift_at=at))]
    change = round(at * COUNT)
    near = [place for place in range(COUNT + 1) if not {*labels[:place]} & {*labels[place:]}]
    inside = [place for place in near if 0 < place < COUNT]
    assert len(inside) == 1, "one change, from classes to others"
    assert abs(inside[0] - change) < COUNT / CLASSES
    assert len({*labels[: inside[0]]}) == round(at * CLASSES)
    assert (np.diff(labels[:100]) < 0).any(), "shuffled before it"


def test_labels_cannot_shift_outside_or_without_another_class() -> None:
    for at in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="between 0 and 1 of the images, got"):
            _order(partial(shift, at=at))
    with pytest.raises(InputError, match="among two classes or more, got one"):
        shift(np.zeros(4, np.int64), 4, np.random.default_rng(0))


def test_labels_are_needed() -> None:
    for order in (by_label, dirichlet, correlated, shift):
        with pytest.raises(InputError, match="this order needs labels"):
            order(None, 3, np.random.default_rng(0))


@pytest.mark.parametrize("concentration", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_concentration(concentration: float) -> None:
    for order in (dirichlet, correlated):
        with pytest.raises(InputError, match="expected a concentration above 0"):
            _order(partial(order, concentration=concentration))


def test_unknown() -> None:
    with pytest.raises(UnknownNameError, match="unknown order 'sortd'; did you mean 'sorted'"):
        ORDERS["sortd"]
