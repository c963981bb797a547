"""The stream itself: batches in order, made ahead of time, a few at a time."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, groupby, zip_longest
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tapr.errors import InputError
from tapr.rng import derive
from tapr.streams.domains import Domain, Numbers
from tapr.streams.orders import ORDERS, Order
from tapr.streams.protocols import PROTOCOLS, Protocol, Segment
from tapr.types import Batch

T = TypeVar("T")


class Step(NamedTuple):
    """A batch before its images are read."""

    segment: Segment
    sources: Numbers  # [B] which of the segment's domains
    places: Numbers  # [B] where in that domain
    reset: bool

    @property
    def numbers(self) -> Numbers:
        """[B] the images' numbers in their data set."""
        numbers = np.empty(len(self.places), np.int64)
        for source in np.unique(self.sources):
            mine = self.sources == source
            numbers[mine] = self.segment.domains[source].numbers[self.places[mine]]
        return numbers


class Stream:
    """Batches of domains; iterating twice gives the same batches.

    `protocol` (see `PROTOCOLS`) is how domains follow each other, `order` (see `ORDERS`) how images
    do within one; a mixed stream is shuffled unless `order` says otherwise. `protocols.made` and
    `orders.made` give either its parameters. `prefetch` batches are made ahead, by one thread.
    """

    def __init__(
        self,
        domains: Sequence[Domain],
        batch_size: int = 200,
        *,
        protocol: str | Protocol = "each",
        order: str | Order | None = None,
        seed: int = 0,
        prefetch: int = 2,
    ) -> None:
        if not domains:
            raise InputError("expected at least one domain, got none")
        if batch_size < 1 or prefetch < 0:
            raise InputError(
                f"expected a batch size of at least 1 and a prefetch of at least 0, "
                f"got {batch_size} and {prefetch}"
            )
        if order is None:
            order = usual_order(protocol)
        segments = (PROTOCOLS[protocol] if isinstance(protocol, str) else protocol)(domains)
        ordering = ORDERS[order] if isinstance(order, str) else order
        self.prefetch = prefetch
        self.plan: tuple[Step, ...] = ()
        seen: Counter[str] = Counter()  # a domain may come twice, each time in a new order
        for alternates, group in groupby(segments, lambda segment: segment.alternates):
            plans = []
            for segment in group:
                key = derive(seed, "order", segment.name, seen[segment.name])
                seen[segment.name] += 1
                plans.append(list(_steps(segment, ordering, batch_size, key)))
            self.plan += tuple(_in_turns(plans) if alternates else chain(*plans))

    def __len__(self) -> int:
        return len(self.plan)

    def __iter__(self) -> Iterator[Batch]:
        return self.starting(0)

    def starting(self, first: int) -> Iterator[Batch]:
        """The batches from number `first` on; the ones before it are not made."""
        steps = self.plan[first:]
        found = map(read, steps)  # pixels: tensors, which are four times as large, are not kept
        pixels = ahead(found, self.prefetch) if self.prefetch else found
        for step, images in zip(steps, pixels, strict=True):
            yield batch(step, images)


def usual_order(protocol: str | Protocol) -> str:
    """The order of a protocol's images unless another is asked for."""
    return "shuffled" if protocol == "mixed" else "listed"


def as_tensor(pixels: NDArray[np.uint8]) -> Tensor:
    """Pixels [B, H, W, C] as images [B, C, H, W] in [0, 1]; they lie channels last in memory."""
    # In numpy's memory: before 2.39, glibc seldom uses a freed block again for an aligned one of
    # the same size, as torch wants it, and the heap grows by batches.
    images = torch.from_numpy(np.empty(pixels.shape, np.float32))
    return images.copy_(torch.from_numpy(pixels)).div_(255).permute(0, 3, 1, 2)


def read(step: Step) -> NDArray[np.uint8]:
    """Read a step's images, [B, H, W, C], and corrupt them if its domains do."""
    parts = []
    domains = step.segment.domains
    for source in np.unique(step.sources):
        mine = np.flatnonzero(step.sources == source)
        domain = domains[source]
        parts.append((mine, domain.read(domain.numbers[step.places[mine]])))
    images = np.empty((len(step.sources), *parts[0][1].shape[1:]), np.uint8)
    for mine, pixels in parts:
        images[mine] = pixels
    return images


def batch(step: Step, images: NDArray[np.uint8]) -> Batch:
    """A step with its images."""
    labels = _labels(step.segment.domains, step.sources, step.places)
    return Batch(
        images=as_tensor(images),
        labels=None if labels is None else torch.from_numpy(labels),
        domain=step.segment.name,
        reset=step.reset,
    )


def _steps(segment: Segment, order: Order, batch_size: int, seed: int) -> Iterator[Step]:
    counts = [len(domain) for domain in segment.domains]
    sources = np.repeat(np.arange(len(counts)), counts)
    places = np.concatenate([np.arange(count) for count in counts])
    labels = _labels(segment.domains, sources, places)
    chosen = order(labels, len(places), np.random.Generator(np.random.PCG64(seed)))
    for start in range(0, len(chosen), batch_size):
        part = chosen[start : start + batch_size]
        yield Step(segment, sources[part], places[part], segment.reset and start == 0)


def _in_turns(plans: Iterable[Sequence[Step]]) -> Iterator[Step]:
    """A step of each plan in turn; those that are longer go on alone."""
    return (step for turn in zip_longest(*plans) for step in turn if step is not None)


def _labels(
    domains: Sequence[Domain], sources: Numbers, places: Numbers
) -> NDArray[np.int64] | None:
    labels = np.empty(len(places), np.int64)
    for source in np.unique(sources):
        known = domains[source].labels
        if known is None:
            return None
        mine = sources == source
        labels[mine] = known[places[mine]]
    return labels


def ahead(items: Iterator[T], depth: int) -> Iterator[T]:
    """Pull `items` in a thread, at most `depth` of them before they are asked for."""
    end = object()
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, items, end))
            yield item  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)
