"""What is remembered of a stream to be shown: recent classes, confidence, agreement, shift, acts.

None of it is needed to predict, and none is saved: it begins anew with the server.
"""

import time
from collections import Counter, deque
from typing import Any, NamedTuple

from torch import Tensor

from tapr.service.health import Health
from tapr.service.shadow import Compared

WINDOW = 500  # images whose classes are shown
RECENT = 0.1  # how much the newest batch counts in a running mean
POINTS = 60  # of the curves
ACTS, PICTURES = 20, 6
FIRST = 8.0  # images that the unadapted model owes a new stream


class Picture(NamedTuple):
    """An image beside what was predicted before and after adaptation."""

    png: bytes
    before: int
    after: int


class Seen:
    """A stream's recent past."""

    def __init__(self) -> None:
        self.classes: deque[int] = deque(maxlen=WINDOW)
        self.confidence: float | None = None
        self.agreement: float | None = None  # share of images that the source model calls the same
        self.shift: list[float] = []  # nats from the source, by batch-norm layer
        self.curve: deque[tuple[float, float | None]] = deque(maxlen=POINTS)
        self.acts: deque[dict[str, Any]] = deque(maxlen=ACTS)
        self.pictures: deque[Picture] = deque(maxlen=PICTURES)
        self.owed = FIRST

    def batch(self, classes: list[int], confidence: float) -> None:
        """Take in a batch: its classes, and the mean confidence."""
        self.classes.extend(classes)
        self.confidence = _mixed(self.confidence, confidence)
        self.curve.append((round(self.confidence, 4), self.agreement and round(self.agreement, 4)))

    def owes(self, images: int, share: float) -> int:
        """How many of a batch's images the unadapted model is to predict, too."""
        self.owed += share * images if share else -self.owed
        if self.owed < FIRST:
            return 0
        due = min(int(self.owed), images)
        self.owed -= due
        return due

    def compared(self, found: Compared, classes: Tensor) -> None:
        """Take in what the unadapted model says, beside the classes that were answered."""
        agree = (found.logits.argmax(1) == classes[: len(found.logits)]).float().mean().item()
        self.agreement = _mixed(self.agreement, agree)
        before = self.shift or found.shift
        self.shift = [round(_mixed(a, b), 5) for a, b in zip(before, found.shift, strict=True)]

    def judged(self, before: Health, after: Health) -> None:
        """Take in a change of health."""
        if before.verdict != after.verdict:
            self.act(f"health {before.verdict} -> {after.verdict}", after.why)

    def act(self, what: str, why: str = "") -> None:
        """Take in what was done to the stream, by the guard or by an operator."""
        self.acts.append({"time": time.time(), "what": what, "why": why})

    def counts(self) -> dict[int, int]:
        """How often each class was predicted among the last images."""
        return dict(Counter(list(self.classes)).most_common())


def _mixed(mean: float | None, new: float) -> float:
    return new if mean is None else mean + RECENT * (new - mean)
