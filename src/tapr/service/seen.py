"""A stream's recent past, for the dashboard: classes, confidence, agreement, what was done.

It is not needed to predict and is not saved: it is empty when the server starts.
"""

import io
import time
from collections import Counter, deque
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from tapr.types import Health

WINDOW = 500  # the number of recent images whose classes are shown
RECENT = 0.1  # the weight of the newest batch in the mean confidence
POINTS = 60  # points of the curves
ACTS, PICTURES = 20, 6
SHARE = 0.05  # the share of images that the unadapted model also sees, to measure the shift
SIDE = 96  # the most pixels of a picture's side
FIRST = 8.0  # how many images of a new stream it sees, and the least at a time


class Picture(NamedTuple):
    """An image with its predictions before and after adaptation."""

    png: bytes
    before: int
    after: int

    @classmethod
    def of(cls, image: Tensor, before: int, after: int) -> "Picture":
        """A small PNG of an image [C, H, W] in [0, 1], with its classes."""
        pixels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
        drawn = Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels)
        drawn.thumbnail((SIDE, SIDE))
        file = io.BytesIO()
        drawn.save(file, "PNG")
        return cls(file.getvalue(), before, after)


class Seen:
    """A stream's recent past."""

    def __init__(self) -> None:
        self.classes: deque[int] = deque(maxlen=WINDOW)
        self.confidence: float | None = None
        self.curve: deque[tuple[float, float | None]] = deque(maxlen=POINTS)
        self.acts: deque[dict[str, Any]] = deque(maxlen=ACTS)
        self.pictures: deque[Picture] = deque(maxlen=PICTURES)
        self.shift: list[float] = []  # nats from the source, by batch-norm layer
        self._owed = FIRST

    def batch(self, classes: list[int], confidence: float, health: Health) -> None:
        """Record a batch: its classes, the mean confidence and the health."""
        self.classes.extend(classes)
        before = confidence if self.confidence is None else self.confidence
        self.confidence = before + RECENT * (confidence - before)
        self.curve.append((round(self.confidence, 4), agreement(health)))

    def sample(self, images: int) -> int:
        """How many of a batch's images the unadapted model is to predict as well."""
        self._owed += SHARE * images
        due = min(int(self._owed), images) if self._owed >= FIRST else 0
        self._owed -= due
        return due

    def shifted(self, nats: list[float]) -> None:
        """Record the shift of a sample at each batch-norm layer."""
        pairs = zip(self.shift or nats, nats, strict=True)
        self.shift = [round(old + RECENT * (new - old), 5) for old, new in pairs]

    def judged(self, before: Health, after: Health) -> None:
        """Record a change of health, and what the guard did."""
        if before.verdict != after.verdict:
            self.act(f"health {before.verdict} -> {after.verdict}", after.reason)
        if after.action and after.action != before.action:
            self.act(f"guard: {after.action}", after.reason)

    def act(self, what: str, why: str = "") -> None:
        """Record what the guard or an operator did to the stream."""
        self.acts.append({"time": time.time(), "what": what, "why": why})

    def counts(self) -> dict[int, int]:
        """How often each class was predicted among the last images."""
        return dict(Counter(list(self.classes)).most_common())


def agreement(health: Health) -> float | None:
    """The share of images that the unadapted model puts into the same class, where it is known."""
    return round(health.agreement, 4) if health.images else None
