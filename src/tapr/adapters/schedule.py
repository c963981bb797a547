"""How many steps a batch gets: a fixed number, or as many of these as fit into a time limit."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple, get_args

from tapr.errors import InputError
from tapr.registry import Registry

Predict = Literal["before", "after"]
PREDICTS = Registry("predict", {name: name for name in get_args(Predict)})
FORGETTING = 0.9


class Schedule(NamedTuple):
    """How many steps a batch gets, and which forward pass predicts it."""

    steps: int = 1
    episodic: bool = False  # start every batch from the source model
    predict: Predict = (
        "after"  # from the first adapting forward, or a fresh one after the last step
    )
    redraw: bool = False  # draw new views for each step, or once per batch
    budget: float | None = None  # seconds for a batch; it gets as many of the steps as fit

    def check(self) -> None:
        """Refuse values outside their range."""
        PREDICTS.check(self.predict)
        if self.steps < 0:
            raise InputError(f"expected 0 steps or more, got {self.steps}")
        limit = math.inf if self.budget is None else self.budget
        if not isinstance(limit, int | float) or not limit > 0:
            raise InputError(f"expected a budget in seconds above 0, got {self.budget!r}")


class Budget:
    """Decides whether another step fits into the time for a batch, from the time of earlier ones.

    The very first step is a warm-up: it is taken, but its time is not used. When no step fitted
    into a batch, we expect a step to take a tenth less in the next one, so that one slow step does
    not end adaptation for ever.
    """

    clock = staticmethod(time.perf_counter)

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._started, self._images, self._steps = 0.0, 0, 0
        self._step = self._prediction = 0.0  # seconds per image, as last measured
        self._warm = False

    def begin(self, images: int) -> None:
        """Begin a batch of so many images."""
        if not self._steps:
            self._step *= FORGETTING
        self._started, self._images, self._steps = self.clock(), images, 0

    def fits(self) -> bool:
        """Whether there is time for another step and the prediction."""
        if self.seconds is None:
            return True
        ahead = (self._step + self._prediction) * self._images
        return self.clock() - self._started + ahead <= self.seconds

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure a step."""
        started = self.clock()
        yield
        self._step = (self.clock() - started) / self._images if self._warm else 0.0
        self._warm, self._steps = True, self._steps + 1

    @contextmanager
    def prediction(self) -> Iterator[None]:
        """Measure the time of the prediction."""
        started = self.clock()
        yield
        self._prediction = (self.clock() - started) / self._images
