"""What is remembered of a stream to be shown: recent classes, confidence, agreement, acts.

None of it is needed to predict, and none is saved: it begins anew with the server.
"""

import io
import time
from collections import Counter, deque
from typing import Any, NamedTuple

from PIL import Image
from torch import Tensor

from tapr.types import Health

WINDOW = 500  # images whose classes are shown
RECENT = 0.1  # how much the newest batch counts in the mean confidence
POINTS = 60  # of the curves
ACTS, PICTURES = 20, 6
SHARE = 0.05  # of the images, that the unadapted model is shown to measure the shift
SIDE = 96  # pixels of a picture at the most
FIRST = 8.0  # images of a new stream that it is shown, and the least at a time


class Picture(NamedTuple):
    """An image beside what was predicted before and after adaptation."""

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
        """Take in a batch: its classes, and the mean confidence."""
        self.classes.extend(classes)
        before = confidence if self.confidence is None else self.confidence
        self.confidence = before + RECENT * (confidence - before)
        self.curve.append((round(self.confidence, 4), agreement(health)))

    def sample(self, images: int) -> int:
        """How many of a batch's images the unadapted model is to see, too."""
        self._owed += SHARE * images
        due = min(int(self._owed), images) if self._owed >= FIRST else 0
        self._owed -= due
        return due

    def shifted(self, nats: list[float]) -> None:
        """Take in how far a sample lies from what the unadapted model knows, layer by layer."""
        pairs = zip(self.shift or nats, nats, strict=True)
        self.shift = [round(old + RECENT * (new - old), 5) for old, new in pairs]

    def judged(self, before: Health, after: Health) -> None:
        """Take in a change of health, and what the guard did."""
        if before.verdict != after.verdict:
            self.act(f"health {before.verdict} -> {after.verdict}", after.reason)
        if after.action and after.action != before.action:
            self.act(f"guard: {after.action}", after.reason)

    def act(self, what: str, why: str = "") -> None:
        """Take in what was done to the stream, by the guard or by an operator."""
        self.acts.append({"time": time.time(), "what": what, "why": why})

    def counts(self) -> dict[int, int]:
        """How often each class was predicted among the last images."""
        return dict(Counter(list(self.classes)).most_common())


def agreement(health: Health) -> float | None:
    """The share of images that the unadapted model puts into the same class, where it is known."""
    return round(health.agreement, 4) if health.images else None
