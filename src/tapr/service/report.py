"""The report of an engine about itself: its facts, its counters, and a row for each stream."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

Mode = Literal["adapted", "frozen", "late"]
MODES: tuple[Mode, ...] = get_args(Mode)


class Facts(NamedTuple):
    """The facts about an engine that do not change."""

    recipe: dict[str, Any]  # of its adapter
    classes: int
    most_state: int  # bytes that an exported state may have


class Report(NamedTuple):
    """Counters since the start, the images waiting, and the streams as rows of `shown.row`."""

    images: Counter[Mode] = Counter()  # predicted
    batches: int = 0
    steps: int = 0
    refused: int = 0  # steps that the guard refused
    failures: int = 0  # saves that failed
    waiting: int = 0  # images in the queue
    streams: tuple[dict[str, Any], ...] = ()

    @property
    def in_memory(self) -> int:
        """The number of streams whose state is in memory."""
        return sum(row["in_memory"] for row in self.streams)

    @property
    def state_bytes(self) -> int:
        """The bytes of state that streams in memory do not share with the source model."""
        return sum(row["bytes"] for row in self.streams if row["in_memory"])

    def verdicts(self) -> Counter[str]:
        """The number of streams for each verdict."""
        return Counter(row["health"]["verdict"] for row in self.streams)


def counted(reports: Iterable[Report]) -> Report:
    """The counters of several engines together, without their streams."""
    found = list(reports)
    images: Counter[Mode] = Counter()
    for each in found:
        images.update(each.images)
    return Report(
        images,
        *(
            sum(getattr(each, name) for each in found)
            for name in ("batches", "steps", "refused", "failures", "waiting")
        ),
    )
