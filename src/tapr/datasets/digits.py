"""scikit-learn's 1,797 handwritten digits: no download."""

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import numpy as np

from tapr.datasets.base import Dataset, Entry, Logged, Watcher
from tapr.errors import DataError

_PARTS = {"all": slice(None), "train": slice(0, 1297), "test": slice(1297, None)}


class Digits(Entry):
    """Grey images of 8 x 8 with 17 levels, as RGB bytes: level k is round(k * 255 / 16)."""

    name = "digits"
    about = "scikit-learn's 1,797 digits of 8 x 8"
    size = "-"
    splits: ClassVar[tuple[str, ...]] = tuple(_PARTS)

    def where(self) -> Path | None:
        """scikit-learn's own folder."""
        found = find_spec("sklearn")
        return Path(found.origin).parent if found and found.origin else None

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Nothing to do but to see that scikit-learn is installed."""
        if origin is not None:
            raise DataError("digits come with scikit-learn, not from a path: leave --from out")
        for problem in self.verify(watch):
            raise DataError(problem)
        watch.note(f"digits come with scikit-learn, in {self.where()}")

    def verify(self, watch: Watcher) -> list[str]:
        """Is scikit-learn there?"""
        if self.where():
            return []
        return ["digits need scikit-learn: pip install 'tapr[digits]'"]

    def load(self, split: str) -> Dataset:
        """The first 1,297 images are "train", the last 500 "test"; "all" is all of them."""
        part = _PARTS[self.check_split(split)]
        for problem in self.verify(Logged()):
            raise DataError(problem)
        from sklearn.datasets import load_digits

        bunch = load_digits()
        grey = np.rint(bunch.images[part] * (255 / 16)).astype(np.uint8)
        images = np.repeat(grey[..., None], 3, axis=3)
        labels = bunch.target[part].astype(np.int64)
        return Dataset(self.name, images, labels, tuple("0123456789"))
