"""Memories, which choose the images to learn from; without one it is the present batch."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tapr import rng
from tapr.adapters.votes import one_class
from tapr.errors import InputError


class Lesson(NamedTuple):
    """Images to learn from in one step."""

    images: Tensor  # [B, C, H, W]
    weights: Tensor | None = None  # [B], the weight of each; None: all the same


class Memory(nn.Module, ABC):
    """Keeps images of the stream, in buffers, and decides when to learn from which.

    While a memory is empty, its buffers have no images, or are None until the first ones come.
    """

    @abstractmethod
    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Add a batch and the answer given for it; yield a lesson whenever one is due."""


class Recent(Memory):
    """The last `size` images of the stream, so that lessons do not depend on the batch size."""

    images: Tensor

    def __init__(self, size: int = 64) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", None)

    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Replace the oldest images by the newest, then learn from all."""
        _check_size(self.images, images)
        known = images if self.images is None else torch.cat([self.images, images])
        self.images = known[-self.size :].clone()
        yield Lesson(self.images)


class Mixed(Memory):
    """Collects `every` images, or a larger batch, and learns from them if their classes are mixed.

    Classes are mixed if two of the images share a class, by the answers given, at most `most` more
    often than by chance (1: always). Otherwise the images are dropped.
    """

    images: Tensor | None
    answers: Tensor | None  # [N, K], probabilities

    def __init__(self, every: int = 64, most: float = 0.02) -> None:
        super().__init__()
        self.every, self.most = every, most
        self.register_buffer("images", None)
        self.register_buffer("answers", None)

    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Add the images to the others, and learn when there are enough."""
        _check_size(self.images, images)
        answers = logits.softmax(1)
        if self.images is not None and self.answers is not None:
            images, answers = torch.cat([self.images, images]), torch.cat([self.answers, answers])
        due = len(images) >= self.every
        self.images = (images[:0] if due else images).clone()
        self.answers = (answers[:0] if due else answers).clone()
        if due:
            count = answers.new_tensor(len(answers))
            shared = one_class(answers.mean(0), answers.square().sum(1).mean(), count)
            if shared <= self.most:  # False for NaN
                yield Lesson(images)


@dataclass
class Item:
    """An image in a memory of shelves, with its prediction at the time it came."""

    image: Tensor  # [C, H, W]
    label: int  # the predicted class
    entropy: float  # of the prediction, in nats
    age: int = 0  # images that have come since


Shelves = list[list[Item]]  # for each class, the oldest item first


class Shelved(Memory, ABC):
    """Keeps at most `capacity` images by predicted class; a lesson is due after `every` images.

    A subclass decides which image a new one replaces. Images in the memory are not predicted again.
    """

    images: Tensor | None  # [N, C, H, W], class by class
    labels: Tensor  # [N]
    entropies: Tensor  # [N]
    ages: Tensor  # [N]
    seen: Tensor

    def __init__(self, capacity: int = 64, every: int = 64) -> None:
        super().__init__()
        for name, value in (("capacity", capacity), ("every", every)):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value < 2**63:
                raise InputError(f"expected {name} of 1 image or more, got {value!r}")
        self.capacity, self.every = capacity, every
        self.register_buffer("images", None)
        self.register_buffer("labels", torch.zeros(0, dtype=torch.long))
        self.register_buffer("entropies", torch.zeros(0, dtype=torch.float64))
        self.register_buffer("ages", torch.zeros(0, dtype=torch.long))
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        """Add the images one by one; a lesson is the whole memory at that moment."""
        _check_size(self.images, images)
        p = logits.softmax(1)
        labels = p.argmax(1).tolist()
        entropies = -(p * (p + 1e-6).log()).sum(1)
        shelves, seen = self._read(logits.shape[1]), int(self.seen)
        for number, entropy in enumerate(entropies.tolist()):
            if math.isfinite(entropy):  # other predictions say nothing
                self.take(shelves, Item(images[number], labels[number], entropy))
            seen += 1
            if seen % self.every == 0 and any(shelves):
                yield self._lesson(shelves, seen)
        self._write(shelves, seen)

    @abstractmethod
    def take(self, shelves: Shelves, new: Item) -> None:
        """Put a new item on its shelf, or drop it; remove another item for it where needed."""

    def weights(self, items: Sequence[Item]) -> list[float] | None:
        """The weight of each item in a lesson; None: all the same."""
        return None

    def until_due(self) -> int:
        """The number of images until the next lesson."""
        return self.every - int(self.seen) % self.every

    def _lesson(self, shelves: Shelves, seen: int) -> Lesson:
        self._write(shelves, seen)
        assert self.images is not None
        weights = self.weights([item for shelf in shelves for item in shelf])
        return Lesson(self.images, None if weights is None else self.images.new_tensor(weights))

    def _read(self, classes: int) -> Shelves:
        shelves: Shelves = [[] for _ in range(classes)]
        if self.images is not None:
            known = (self.labels, self.entropies, self.ages)
            for item in zip(self.images, *(part.tolist() for part in known), strict=True):
                shelves[item[1]].append(Item(*item))
        return shelves

    def _write(self, shelves: Shelves, seen: int) -> None:
        self.seen.fill_(seen)
        items = [item for shelf in shelves for item in shelf]
        if not items:
            return
        self.images = torch.stack([item.image for item in items])
        self.labels = self.labels.new_tensor([item.label for item in items])
        self.entropies = self.entropies.new_tensor([item.entropy for item in items])
        self.ages = self.ages.new_tensor([item.age for item in items])


class Timely(Shelved):
    """Keeps as many images of each class, and recent and certain ones (CSTU, of RoTTA).

    The older and the less certain an image is, the sooner it is replaced. A new image replaces one
    of its own class when that class has its share of the capacity; else, when the memory is full,
    it replaces one of a largest class. In a lesson old images count less. With more classes than
    places, each class has at most one image.
    """

    def __init__(
        self, capacity: int = 64, every: int = 64, *, timeliness: float = 1.0, doubt: float = 1.0
    ) -> None:
        super().__init__(capacity, every)
        self.timeliness, self.doubt = timeliness, doubt  # the paper's lambda_t and lambda_u

    def take(self, shelves: Shelves, new: Item) -> None:
        """Replace the worst item that the new one may replace, if it is better; then age all."""
        own = shelves[new.label]
        if len(own) >= self.capacity / len(shelves):
            room = self._replaces([own], new, len(shelves))
        elif sum(map(len, shelves)) < self.capacity:
            room = True
        else:
            most = max(map(len, shelves))
            room = self._replaces([s for s in shelves if len(s) == most], new, len(shelves))
        if room:
            own.append(new)
        for shelf in shelves:
            for item in shelf:
                item.age += 1

    def score(self, item: Item, classes: int) -> float:
        """The score of an item; a higher one is replaced first."""
        aged = 1 / (1 + math.exp(-item.age / self.capacity))
        return self.timeliness * aged + self.doubt * item.entropy / math.log(max(classes, 2))

    def weights(self, items: Sequence[Item]) -> list[float]:
        """Weights that fall with age; a new image has the weight one half."""
        decays = [math.exp(-item.age / self.capacity) for item in items]
        return [decay / (1 + decay) for decay in decays]

    def _replaces(self, shelves: Shelves, new: Item, classes: int) -> bool:
        """Remove the item with the highest score, if the new one's is lower; of equals the last."""
        worst, place, shelf = -math.inf, 0, shelves[0]
        for candidates in shelves:
            for number, item in enumerate(candidates):
                if self.score(item, classes) >= worst:
                    worst, place, shelf = self.score(item, classes), number, candidates
        if worst > self.score(new, classes):
            shelf.pop(place)
            return True
        return False


class Balanced(Shelved):
    """Keeps as many images of each class, a random sample of the stream (PBRS, of NOTE)."""

    counts: Tensor | None  # [K], images seen of each class

    def __init__(self, capacity: int = 64, every: int = 64, *, seed: int = 0) -> None:
        super().__init__(capacity, every)
        self.generator = rng.generator(seed, "memory")
        self.register_buffer("counts", None)

    def take(self, shelves: Shelves, new: Item) -> None:
        """Always add an image of a small class; add one of a large class by reservoir sampling."""
        if self.counts is None:
            self.counts = self.labels.new_zeros(len(shelves))
        self.counts[new.label] += 1
        if sum(map(len, shelves)) >= self.capacity:
            most = max(map(len, shelves))
            largest = [shelf for shelf in shelves if len(shelf) == most]
            own = shelves[new.label]
            if len(own) < most:
                own = largest[self._drawn(len(largest))]
            elif not self._uniform() <= most / int(self.counts[new.label]):
                return
            own.pop(self._drawn(len(own)))
        shelves[new.label].append(new)

    def _drawn(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self.generator))

    def _uniform(self) -> float:
        return float(torch.rand((), generator=self.generator, dtype=torch.float64))


class Latest(Shelved):
    """Keeps the latest images, whatever their class."""

    def take(self, shelves: Shelves, new: Item) -> None:
        """Add an item; remove the oldest when the memory is full."""
        if sum(map(len, shelves)) >= self.capacity:
            oldest = max((shelf for shelf in shelves if shelf), key=lambda shelf: shelf[0].age)
            oldest.pop(0)
        shelves[new.label].append(new)
        for shelf in shelves:
            for item in shelf:
                item.age += 1


def _check_size(known: Tensor | None, images: Tensor) -> None:
    """Refuse images of another size than those in the memory."""
    if known is not None and known.shape[1:] != images.shape[1:]:
        raise InputError(
            f"expected images of {list(known.shape[1:])}, as those in the memory are, got"
            f" {list(images.shape[1:])}; reset the adapter before images of another size"
        )
