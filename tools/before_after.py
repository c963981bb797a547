"""Draw docs/images/before-after.png: the same photographs, unadapted and adapted predictions.

The images are the first of the last batch, not picked. Run it with `python tools/before_after.py`.
"""

from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes

import tapr

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "before-after.png"
CORRUPTIONS = ("gaussian_noise", "contrast")
IMAGES, BATCH, ACROSS = 1000, 200, 8
RIGHT, WRONG = "#1a7f37", "#c0341d"


def predictions(method: str, corruption: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What the shipped model says of each image of the stream, adapted by `method`."""
    adapter = tapr.adapt(tapr.models.load("cifar10-small"), method)
    domains = tapr.streams.corrupted("cifar10", [corruption], [5], IMAGES)
    batches = tapr.streams.Stream(domains, BATCH)
    return torch.cat([adapter(batch.images).argmax(1) for batch in batches]).numpy()


def draw(axes: Axes, pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> None:
    """One photograph, without axes."""
    axes.imshow(pixels, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def main() -> None:
    """Predict, draw, write."""
    matplotlib.use("agg")
    data = tapr.datasets.load("cifar10")
    assert data.labels is not None
    labels = data.labels[:IMAGES]
    shown = range(IMAGES - BATCH, IMAGES - BATCH + ACROSS)
    figure, grid = pyplot.subplots(3, ACROSS, figsize=(11, 5.6))
    figure.set_layout_engine("constrained", rect=(0, 0.04, 1, 0.96))  # room for the last words
    for axes, number in zip(grid[0], shown, strict=True):
        draw(axes, data.images[number])
        axes.set_xlabel(data.classes[labels[number]], fontsize=11)
    grid[0, 0].set_ylabel("as it was", fontsize=11)
    for row, corruption in zip(grid[1:], CORRUPTIONS, strict=True):
        guesses = {method: predictions(method, corruption) for method in ("source", "pest")}
        scores = [f"{(guess == labels).mean():.0%}" for guess in guesses.values()]
        pixels = tapr.corruptions.corrupt(data.images[:IMAGES], corruption, 5)
        row[0].set_ylabel(f"{corruption.replace('_', ' ')}\n{scores[0]} → {scores[1]}", fontsize=11)
        for axes, number in zip(row, shown, strict=True):
            draw(axes, pixels[number])
            for line, guess in enumerate(guesses.values()):
                ink = RIGHT if guess[number] == labels[number] else WRONG
                text = ("before: ", "after: ")[line] + data.classes[guess[number]]
                place = (0.5, -0.04 - 0.15 * line)
                axes.annotate(
                    text, place, xycoords="axes fraction", ha="center", va="top", color=ink
                )
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
