"""Streams with parameters: rounds, clean stretches, bursts; what does not fit gets a sentence."""

from typing import Any

import numpy as np
import pytest
import torch

from tapr.errors import InputError, UnknownNameError
from tapr.streams import Domain, Origin, Stream, blank, orders, protocols


def domain(corruption: str | None, count: int = 6) -> Domain:
    labels = np.arange(count) % 3

    def read(numbers: Any) -> Any:
        return np.zeros((len(numbers), 2, 2, 3), np.uint8)

    severity = 5 if corruption else None
    made = Origin("made up")
    return Domain(made, np.arange(count), labels, ("a", "b", "c"), read, corruption, severity)


FOG, SNOW, CLEAN = domain("fog"), domain("snow"), domain(None, 4)


def shape(stream: Stream) -> list[tuple[str, bool, int]]:
    """Of each batch its segment's name, whether it resets, and its images."""
    return [(step.segment.name, step.reset, len(step.places)) for step in stream.plan]


def test_rounds_come_back_to_every_domain_without_a_reset() -> None:
    stream = Stream(
        [FOG, SNOW], 6, protocol=protocols.made("continual", rounds=3), order="shuffled"
    )
    assert shape(stream) == [
        ("fog-5", True, 6),
        ("snow-5", False, 6),
        *[("fog-5", False, 6), ("snow-5", False, 6)] * 2,
    ]
    visits = [step.places.tolist() for step in stream.plan if step.segment.name == "fog-5"]
    assert all(sorted(visit) == list(range(6)) for visit in visits)
    assert visits[0] != visits[1], "each visit in an order of its own"
    once = Stream([FOG, SNOW], 6, protocol="continual", order="shuffled")
    assert [s.places.tolist() for s in once.plan] == [s.places.tolist() for s in stream.plan[:2]]


def test_rounds_of_a_mixed_stream_hold_all_domains_again() -> None:
    stream = Stream([FOG, SNOW], 12, protocol=protocols.made("mixed", rounds=2), order="shuffled")
    assert shape(stream) == [("mixed", True, 12), ("mixed", False, 12)]
    for step in stream.plan:
        assert np.bincount(step.sources).tolist() == [6, 6]


def test_clean_images_stand_before_and_after() -> None:
    made = protocols.made("continual", rounds=2, clean=CLEAN)
    stream = Stream([FOG], 6, protocol=made)
    assert shape(stream) == [
        ("clean before", True, 4),
        ("fog-5", False, 6),
        ("fog-5", False, 6),
        ("clean after", False, 4),
    ]


def test_without_parameters_a_protocol_and_an_order_are_those_of_the_table() -> None:
    for name in protocols.PROTOCOLS:
        assert protocols.made(name) is protocols.PROTOCOLS[name]
    for name in orders.ORDERS:
        assert orders.made(name) is orders.ORDERS[name]


def test_a_burst_shows_each_image_so_often_in_a_row() -> None:
    stream = Stream([FOG], 4, order=orders.made("shuffled", burst=3))
    seen = np.concatenate([step.places for step in stream.plan])
    assert (seen.reshape(6, 3) == seen[::3, None]).all()
    assert sorted(seen[::3]) == list(range(6))
    plain = Stream([FOG], 4, order="shuffled")
    assert seen[::3].tolist() == np.concatenate([step.places for step in plain.plan]).tolist()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "each", "rounds": 2}, "several rounds need one stream of all domains, got the"),
        ({"name": "each", "clean": CLEAN}, "clean images before and after need one stream"),
        ({"name": "each", "blank": CLEAN}, "blank images before need one stream"),
        ({"name": "mixed", "rounds": 0}, "expected at least 1 round, got 0"),
    ],
)
def test_a_protocol_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        protocols.made(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"name": "sorted", "delta": 1},
            "delta belongs to the order dirichlet and correlated, got",
        ),
        ({"name": "dirichlet", "shift_at": 0.1}, "shift_at belongs to the order shift, got diri"),
        ({"name": "listed", "burst": 0}, "expected bursts of at least 1, got 0"),
    ],
)
def test_an_order_that_cannot_be(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        orders.made(**given)


def test_alternating_domains_take_turns_batch_by_batch() -> None:
    stream = Stream([FOG, CLEAN], 2, protocol="alternating")
    assert shape(stream) == [
        ("fog-5", True, 2),
        ("clean", False, 2),
        ("fog-5", False, 2),
        ("clean", False, 2),
        ("fog-5", False, 2),  # it has more images, and goes on alone
    ]
    seen = [step.places.tolist() for step in stream.plan if step.segment.name == "fog-5"]
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("kind", ["black", "constant", "noise"])
def test_blank_images_come_first_and_have_no_labels(kind: str) -> None:
    nothing = blank(kind, FOG, 4)
    stream = Stream([FOG], 4, protocol=protocols.made("continual", blank=nothing))
    assert shape(stream) == [(kind, True, 4), ("fog-5", False, 4), ("fog-5", False, 2)]
    first, second, _ = stream
    assert first.labels is None
    assert second.labels is not None
    assert first.images.shape == second.images.shape
    colours = first.images.flatten(2)
    assert bool((colours == colours[..., :1]).all()) == (kind != "noise")
    assert bool((first.images == 0).all()) == (kind == "black")
    assert torch.equal(next(iter(stream)).images, first.images)
    again = nothing.read(nothing.numbers[2:])
    np.testing.assert_array_equal(again, nothing.read(nothing.numbers)[2:])


def test_an_unknown_kind_of_blank_images() -> None:
    with pytest.raises(UnknownNameError, match="unknown kind of blank images 'blakc'; did you"):
        blank("blakc", FOG, 4)
