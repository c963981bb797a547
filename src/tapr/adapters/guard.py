"""The guard: what is not finite never stays in the model."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from tapr.adapters.moving import Moment

if TYPE_CHECKING:
    from tapr.adapters.adapter import Adapter

log = logging.getLogger("tapr")


class NotFinite(Exception):  # noqa: N818  # it ends a step, and reaches nobody
    """Raised within `Guard.step` when something is not finite; the message says what."""


class Guard(nn.Module):
    """Rolls an adapter back when a step was not finite, and counts that."""

    refusals: Tensor  # since the start or the last reset

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("refusals", torch.tensor(0))
        self.refused = 0  # in the batch at hand
        self.start: Moment | None = None  # of the batch at hand
        self._marked: Moment | None = None
        self._good: Moment | None = None

    def begin(self, adapter: "Adapter") -> None:
        """A batch begins: this moment is good."""
        self.start = self._good = adapter.capture(self.start)
        self.refused = 0

    def mark(self, adapter: "Adapter") -> None:
        """Call this moment good: the next rollback returns to it."""
        self._good = self._marked = adapter.capture(self._marked)

    @contextmanager
    def step(self, adapter: "Adapter", *, first: bool = True) -> Iterator[None]:
        """Around a step: on `NotFinite` the adapter is as it was before it."""
        if not first:  # before the first step lies the start of the batch, or what was marked
            self.mark(adapter)
        try:
            yield
        except NotFinite as trouble:
            self.roll_back(adapter, str(trouble))

    def roll_back(self, adapter: "Adapter", why: str, *, to: Moment | None = None) -> None:
        """Return to the last good moment, or to another one, and count it."""
        count = self.refusals + 1
        moment = to or self._good
        assert moment is not None
        adapter.put_back(moment, generators=False)  # the next batch draws views of its own
        self.refusals.copy_(count)
        self.refused += 1
        log.warning("a step was refused and rolled back: %s", why)
