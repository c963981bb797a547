"""What a data set is, and what every entry of the catalogue can do."""

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tapr import cache
from tapr.errors import DataError
from tapr.registry import suggest

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

_log = logging.getLogger("tapr.datasets")


@dataclass(frozen=True)
class Dataset:
    """Images and their labels, in the same order."""

    name: str
    images: Pixels  # [N, H, W, C]; a `LazyImages`, indexed the same way, when they stay on disk
    labels: Labels | None  # [N], or None when the data has none
    classes: tuple[str, ...]
    skipped: tuple[str, ...] = field(default=(), repr=False)  # files that could not be read
    checked: bool = field(default=True, repr=False)  # False: nobody has looked at the files yet

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        if len(self.labels) != len(self.images):
            raise DataError(
                f"{self.name}: expected as many labels as images, "
                f"got {len(self.labels)} labels for {len(self.images)} images"
            )
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise DataError(
                f"{self.name}: expected labels from 0 to {len(self.classes) - 1}, "
                f"got {self.labels.min()} to {self.labels.max()}"
            )

    def __len__(self) -> int:
        return len(self.images)


class Watcher(Protocol):
    """Receives the progress of a long fetch; the command line shows it, Python logs it."""

    def note(self, text: str) -> None:
        """Take one line of text about what has just happened."""

    def progress(self, done: int, total: int | None) -> None:
        """Take how many bytes, or images, are done, and of how many, where that is known."""


class Logged:
    """The watcher of Python callers: it writes to the `tapr.datasets` logger."""

    def note(self, text: str) -> None:
        """Log the line."""
        _log.info(text)

    def progress(self, done: int, total: int | None) -> None:
        """Ignore progress: a log is no progress bar."""


class Entry(ABC):
    """A named data set of the catalogue, which knows how to fetch, check and load itself."""

    name: str
    about: str  # in a few words
    size: str  # what there is to fetch, for people: "139 MB"
    classes: tuple[str, ...]  # their names
    splits: ClassVar[tuple[str, ...]]
    training: ClassVar[Mapping[str, Any]] = {}  # how `tapr train` departs from its defaults

    @abstractmethod
    def where(self) -> Path | None:
        """Return the file or folder that holds the data on this machine, or None."""

    @abstractmethod
    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Fetch the data, or take it from `origin`, and verify it; cheap when it is here."""

    @abstractmethod
    def verify(self, watch: Watcher) -> list[str]:
        """Check the data on this machine; one sentence for each thing that is wrong."""

    @abstractmethod
    def load(self, split: str) -> Dataset:
        """Load a split, after fetching the data where that is needed."""

    def check_split(self, split: str) -> str:
        """Return `split`, or raise an error that names the splits of this data set."""
        if split not in self.splits:
            hint = suggest(split, self.splits)
            raise DataError(f"{self.name} has no split {split!r}; {hint}")
        return split


class Linked(Entry):
    """A large data set that stays where the user has it; `link.json` in the cache says where."""

    def where(self) -> Path | None:
        """Return the remembered folder, or None when it is gone or none was given."""
        path = Path(self.recall().get("path", ""))
        return path if path.is_absolute() and path.is_dir() else None

    def recall(self) -> dict[str, Any]:
        """Return what `remember` wrote, or {} when that is missing or damaged."""
        try:
            content = json.loads((cache.folder() / self.name / "link.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def remember(self, path: Path, **more: object) -> None:
        """Write down the folder of the data, and whatever else the entry wants to find again."""
        content = {"path": str(path.absolute()), **more}
        with cache.locked(self.name) as folder, cache.writing(folder / "link.json") as part:
            part.write_text(json.dumps(content, indent=1), "utf-8")
