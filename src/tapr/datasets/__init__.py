"""Real data, fetched once, verified, and kept in the cache folder."""

from tapr.datasets.base import Dataset, Entry, Watcher
from tapr.datasets.catalogue import DATASETS

__all__ = ["DATASETS", "Dataset", "Entry", "Watcher", "load"]


def load(name: str, split: str = "test") -> Dataset:
    """Load a split of a named data set, fetching it first when it is not here."""
    return DATASETS[name].load(split)
