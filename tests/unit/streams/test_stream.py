"""Batches: complete, in order, marked, ragged at the end, made ahead but not too far."""

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tapr.errors import DataError, InputError, UnknownNameError
from tapr.streams import PROTOCOLS, Domain, Origin, Stream
from tapr.types import Batch

COUNT = 7


def _domain(name: str, labels: Sequence[int] | None = (0, 1, 2, 0, 1, 2, 0)) -> Domain:
    """Images 2 x 2 whose pixels are their number."""

    def read(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        return np.broadcast_to(numbers[:, None, None, None], (len(numbers), 2, 2, 3)).astype(
            np.uint8
        )

    known = None if labels is None else np.array(labels)
    return named(name, np.arange(COUNT), known, ("a", "b", "c"), read)


def named(name: str, *rest: Any) -> Domain:
    corruption, _, severity = name.rpartition("-")
    known = (corruption, int(severity)) if corruption else ()
    return Domain(Origin("made up"), *rest, *known)


def _numbers(batch: Batch) -> list[int]:
    return [round(value) for value in (batch.images[:, 0, 0, 0] * 255).tolist()]


FOG, SNOW = _domain("fog-5"), _domain("snow-5")
LEVELS = [_domain(f"{name}-{severity}") for name in ("fog", "snow") for severity in (1, 2, 3)]


def test_each_resets_at_every_domain_and_ends_ragged() -> None:
    batches = list(Stream([FOG, SNOW], 3))
    assert [(b.domain, b.reset, len(b.images)) for b in batches] == [
        ("fog-5", True, 3),
        ("fog-5", False, 3),
        ("fog-5", False, 1),
        ("snow-5", True, 3),
        ("snow-5", False, 3),
        ("snow-5", False, 1),
    ]
    assert [_numbers(batch) for batch in batches[:3]] == [[0, 1, 2], [3, 4, 5], [6]]


def test_a_batch_is_what_its_type_says() -> None:
    batch = next(iter(Stream([FOG], 3)))
    assert batch.images.shape == (3, 3, 2, 2)
    assert batch.images.dtype == torch.float32
    assert batch.images.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(batch.images[2], torch.full((3, 2, 2), 2 / 255), rtol=0, atol=0)
    assert batch.labels is not None
    assert batch.labels.tolist() == [0, 1, 2]
    assert batch.labels.dtype == torch.int64


@pytest.mark.parametrize("size", [1, 2, 6, 7, 8, 100])
def test_any_batch_size_shows_every_image_once(size: int) -> None:
    stream = Stream([FOG, SNOW], size, order="shuffled")
    batches = list(stream)
    assert len(stream) == len(batches) == 2 * -(-COUNT // size)
    for name in ("fog-5", "snow-5"):
        seen = [number for batch in batches if batch.domain == name for number in _numbers(batch)]
        assert sorted(seen) == list(range(COUNT))


def test_continual_starts_from_the_source_once() -> None:
    batches = list(Stream([FOG, SNOW], 3, protocol="continual"))
    assert [batch.reset for batch in batches] == [True] + [False] * 5
    assert [batch.domain for batch in batches] == ["fog-5"] * 3 + ["snow-5"] * 3


def test_mixed_mixes_the_domains_within_batches() -> None:
    bright = _domain("bright-5")
    stream = Stream([FOG, bright], 4, protocol="mixed")
    batches = list(stream)
    assert [len(batch.images) for batch in batches] == [4, 4, 4, 2]
    assert [batch.reset for batch in batches] == [True, False, False, False]
    assert {batch.domain for batch in batches} == {"mixed"}
    assert any(len(set(step.sources.tolist())) == 2 for step in stream.plan)
    seen = sorted(number for batch in batches for number in _numbers(batch))
    assert seen == sorted([*range(COUNT), *range(COUNT)])
    for step, batch in zip(stream.plan, batches, strict=True):
        assert _numbers(batch) == step.places.tolist()
        assert batch.labels is not None
        assert FOG.labels is not None
        assert batch.labels.tolist() == FOG.labels[step.places].tolist()


def test_gradual_rises_and_falls() -> None:
    shuffled_levels = [LEVELS[place] for place in (2, 0, 1, 5, 4, 3)]
    batches = list(Stream(shuffled_levels, COUNT, protocol="gradual"))
    path = [f"{name}-{severity}" for name in ("fog", "snow") for severity in (1, 2, 3, 2, 1)]
    assert [batch.domain for batch in batches] == path
    assert [batch.reset for batch in batches] == [True] + [False] * 9


def test_gradual_needs_severities() -> None:
    for domain in (FOG, _domain("clean")):
        with pytest.raises(InputError, match=f"needs several severities, got only '{domain.name}'"):
            Stream([domain], protocol="gradual")


def test_sorted_within_each_domain() -> None:
    for batch in Stream([FOG, SNOW], COUNT, order="sorted"):
        assert batch.labels is not None
        assert batch.labels.tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_unlabelled() -> None:
    bare = _domain("fog-5", None)
    assert [batch.labels for batch in Stream([bare], 4)] == [None, None]
    assert [batch.labels for batch in Stream([FOG, bare], 20, protocol="mixed")] == [None]
    with pytest.raises(InputError, match="needs labels"):
        Stream([bare], order="sorted")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("order", ["shuffled", "dirichlet"])
def test_seeded_and_repeatable(protocol: str, order: str) -> None:
    def seen(stream: Stream) -> list[list[int]]:
        return [_numbers(batch) for batch in stream]

    stream = Stream(LEVELS, 4, protocol=protocol, order=order, seed=1)
    assert seen(stream) == seen(stream)
    assert seen(stream) == seen(Stream(LEVELS, 4, protocol=protocol, order=order, seed=1))
    assert seen(stream) != seen(Stream(LEVELS, 4, protocol=protocol, order=order, seed=2))


def test_a_domain_keeps_its_order_whatever_stands_before_it() -> None:
    alone = [_numbers(batch) for batch in Stream([SNOW], 3, order="shuffled")]
    after = [_numbers(batch) for batch in Stream([FOG, SNOW], 3, order="shuffled")]
    assert after[3:] == alone
    assert after[:3] != alone


@pytest.mark.parametrize("first", [0, 2, 6, 9])
def test_starting_later_gives_the_rest(first: int) -> None:
    stream = Stream([FOG, SNOW], 3, order="shuffled")
    whole = [(_numbers(batch), batch.reset) for batch in stream]
    rest = [(_numbers(batch), batch.reset) for batch in stream.starting(first)]
    assert rest == whole[first:]


def _counting(made: list[int], fail_at: int | None = None) -> Domain:
    def read(numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        if len(made) == fail_at:
            raise DataError("the disk is gone")
        made.append(len(numbers))
        return np.zeros((len(numbers), 2, 2, 3), np.uint8)

    return named("fog-5", np.arange(20), None, (), read)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_only_a_few_batches_are_made_ahead(prefetch: int) -> None:
    made: list[int] = []
    batches = iter(Stream([_counting(made)], 1, prefetch=prefetch))
    for taken in range(1, 6):
        next(batches)
        deadline = time.monotonic() + 5
        while len(made) < taken + prefetch and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(0.01)
        assert len(made) == taken + prefetch


def test_nothing_is_made_before_it_is_asked_for() -> None:
    made: list[int] = []
    iter(Stream([_counting(made)], 1))
    assert made == []


def test_an_abandoned_stream_ends_its_thread() -> None:
    before = threading.active_count()
    batches = Stream([_counting([])], 1).starting(0)
    next(batches)
    assert threading.active_count() == before + 1
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_arrives_in_its_place(prefetch: int) -> None:
    batches = iter(Stream([_counting([], fail_at=3)], 1, prefetch=prefetch))
    for _ in range(3):
        next(batches)
    with pytest.raises(DataError, match="the disk is gone"):
        next(batches)


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="at least one domain, got none"):
        Stream([])
    with pytest.raises(InputError, match=r"a batch size of at least 1 .*got 0 and 2"):
        Stream([FOG], 0)
    with pytest.raises(InputError, match="got 200 and -1"):
        Stream([FOG], prefetch=-1)
    with pytest.raises(UnknownNameError, match="unknown protocol 'mixd'; did you mean 'mixed'"):
        Stream([FOG], protocol="mixd")
    with pytest.raises(UnknownNameError, match="unknown order"):
        Stream([FOG], order="sort of")


def test_the_global_generators_are_left_alone() -> None:
    state = torch.get_rng_state()
    list(Stream([FOG], 3, order="shuffled"))
    assert torch.equal(state, torch.get_rng_state())


def test_a_step_knows_its_images_numbers() -> None:
    def part(name: str, numbers: list[int]) -> Domain:
        whole = _domain(name)
        return named(name, np.array(numbers), None, (), whole.read)

    stream = Stream([part("fog-5", [6, 4]), part("snow-5", [5, 1, 3])], 2, protocol="mixed")
    for step, batch in zip(stream.plan, stream, strict=True):
        assert step.numbers.tolist() == _numbers(batch)
