"""Digits: rendered ones to train on, scikit-learn's 1,797 handwritten ones as the real target."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tapr.datasets import render
from tapr.datasets.base import Dataset, Entry, Labels, Pixels, Watcher
from tapr.datasets.classes import DIGITS
from tapr.errors import DataError

MISSING = "real digits need scikit-learn, which is not installed: pip install 'torch-tapr[digits]'"


class Renderings(NamedTuple):
    """A split of rendered digits: its seed, the number of images, and the fonts."""

    seed: int
    images: int
    fonts: tuple[str, ...]


RENDERED = {
    "train": Renderings(0, 20_000, render.FONTS),
    "validation": Renderings(1, 2_000, render.HELD_OUT),
}


class Digits(Entry):
    """Images of 32 x 32: "train" and "validation" are rendered, "test" is real handwriting."""

    name = "digits"
    about = "rendered digits to train on, 1,797 real ones"
    size = "-"
    classes = DIGITS
    splits: ClassVar[tuple[str, ...]] = (*RENDERED, "test")
    # A mirrored digit is another sign, and the renderer has moved and turned the images already.
    training: ClassVar[Mapping[str, Any]] = {
        "architecture": "small-narrow",
        "epochs": 10,
        "augment": "none",
    }

    def where(self) -> Path | None:
        """Return the folder of scikit-learn, which carries the real digits, or None."""
        found = find_spec("sklearn")
        return Path(found.origin).parent if found and found.origin else None

    def get(self, watch: Watcher, origin: Path | None = None) -> None:
        """Check that scikit-learn and the fonts are installed; there is nothing to download."""
        if origin is not None:
            raise DataError("digits come with scikit-learn, not from a path: leave --from out")
        for problem in self.verify(watch):
            raise DataError(problem)
        watch.note(f"real digits come with scikit-learn, in {self.where()}")
        watch.note(f"rendered ones are drawn when they are used, with {render.font_folder()}")

    def verify(self, watch: Watcher) -> list[str]:
        """Check that scikit-learn and the fonts are installed."""
        problems = []
        if self.where() is None:
            problems.append(MISSING)
        try:
            fonts = render.font_folder()
        except DataError as error:
            return [*problems, str(error)]
        wanted = (fonts / f"{font}.ttf" for font in (*render.FONTS, *render.HELD_OUT))
        return problems + [f"{path} is missing" for path in wanted if not path.is_file()]

    def load(self, split: str) -> Dataset:
        """Load the real digits ("test"), or draw the rendered ones."""
        self.check_split(split)
        images, labels = real() if split == "test" else render.render(*RENDERED[split])
        return Dataset(f"{self.name}:{split}", images, labels, self.classes)


def real() -> tuple[Pixels, Labels]:
    """scikit-learn's digits, 8 x 8 with 17 grey levels, enlarged to the renderings' size."""
    if find_spec("sklearn") is None:
        raise DataError(MISSING)
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return enlarged(bunch.images * (255 / 16)), bunch.target.astype(np.int64)


def enlarged(grey: NDArray[np.float64]) -> Pixels:
    """Square grey images [N, S, S] with values from 0 to 255, as large as the renderings."""
    weights = enlarging(grey.shape[1], render.SIDE)
    large = np.rint(weights @ grey @ weights.T).astype(np.uint8)
    return np.repeat(large[..., None], 3, axis=3)


def enlarging(small: int, large: int) -> NDArray[np.float64]:
    """The matrix [large, small] of bilinear enlargement; at the border the edge's value stays.

    >>> enlarging(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    places = np.clip((np.arange(large) + 0.5) * small / large - 0.5, 0, small - 1)
    weights: NDArray[np.float64] = 1 - np.abs(places[:, None] - np.arange(small))
    return weights.clip(0)
