"""Draw docs/images/before-after.png: photographs before and after, and accuracy along a stream.

The shipped `cifar10-small` meets 1,000 test images of CIFAR-10 under each of four corruptions, one
after another, in batches of 50, unadapted and with the default method. The photographs are the
first of the last 200 images of two corruptions, not picked. `python tools/before_after.py`
"""

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

import tapr
from tapr.streams import Stream, corrupted

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "before-after.png"
CORRUPTIONS = ("gaussian_noise", "glass_blur", "snow", "contrast")
SHOWN = ("gaussian_noise", "contrast")
IMAGES, BATCH, ACROSS = 1000, 50, 6
FIRST = IMAGES - 200
WINDOW = 200  # images of the moving average
SMALL, LARGE = 11, 13  # the sizes of letters, in points
RIGHT, WRONG = "#1a7f37", "#c0341d"
COLOURS = {"source": "#6b7280", "steady": "#0b62b8"}
TITLES = {"source": "the model, unadapted", "steady": "the same model, adapting"}


def predictions(method: str) -> NDArray[np.int64]:
    """The classes that a method predicts along the whole stream."""
    adapter = tapr.adapt(tapr.models.load("cifar10-small"), method)
    stream = Stream(corrupted("cifar10", CORRUPTIONS, [5], IMAGES), BATCH, protocol="continual")
    guesses = [adapter(batch.images).argmax(1) for batch in stream]
    return torch.cat(guesses).numpy()


def draw_photograph(axes: Axes, pixels: NDArray[np.uint8]) -> None:
    """One photograph, without axes."""
    axes.imshow(pixels, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_row(row: Any, corruption: str, data: Any, found: dict[str, NDArray[np.int64]]) -> None:
    """Photographs with one corruption, and under each the prediction before and after."""
    start = CORRUPTIONS.index(corruption) * IMAGES
    labels = data.labels[:IMAGES]
    scores = [f"{(guess[start : start + IMAGES] == labels).mean():.0%}" for guess in found.values()]
    row[0].set_ylabel(f"{corruption.replace('_', ' ')}\n{' → '.join(scores)}", fontsize=LARGE)
    pixels = tapr.corruptions.corrupt(data.images[:IMAGES], corruption, 5)
    for axes, number in zip(row, range(FIRST, FIRST + ACROSS), strict=True):
        draw_photograph(axes, pixels[number])
        for line, guess in enumerate(found.values()):
            said = guess[start + number]
            axes.annotate(
                ("before: ", "after: ")[line] + data.classes[said],
                (0.5, -0.04 - 0.14 * line),
                fontsize=SMALL,
                xycoords="axes fraction",
                ha="center",
                va="top",
                color=RIGHT if said == labels[number] else WRONG,
            )


def draw_line(axes: Axes, right: dict[str, NDArray[np.bool_]]) -> None:
    """Accuracy along the stream: a moving average that never mixes two corruptions."""
    for number, corruption in enumerate(CORRUPTIONS):
        start = number * IMAGES
        for method, hits in right.items():
            domain = hits[start : start + IMAGES].astype(float)
            counts = np.arange(1, IMAGES + 1)
            sums = np.cumsum(domain)
            sums[WINDOW:] -= sums[:-WINDOW].copy()
            mean = 100 * sums / np.minimum(counts, WINDOW)
            axes.plot(start + counts[BATCH:], mean[BATCH:], color=COLOURS[method], linewidth=2)
        axes.axvline(start, color="#c9ced6", linewidth=0.8, linestyle=":")
        axes.text(start + 15, 97, corruption.replace("_", " "), fontsize=SMALL, va="top")
    for method, hits in right.items():
        text = f"{TITLES[method]}: {hits.mean():.0%}"
        axes.plot([], [], color=COLOURS[method], linewidth=2, label=text)
    axes.set(xlim=(0, len(CORRUPTIONS) * IMAGES), ylim=(0, 100))
    axes.set_xlabel(f"images seen (mean of the last {WINDOW})", fontsize=SMALL)
    axes.set_ylabel("accuracy, %", fontsize=SMALL)
    axes.tick_params(labelsize=SMALL)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower left", frameon=False, ncols=2, fontsize=SMALL)


def main() -> None:
    """Predict, draw, write."""
    matplotlib.use("agg")
    data = tapr.datasets.load("cifar10")
    assert data.labels is not None
    found = {method: predictions(method) for method in COLOURS}
    labels = np.tile(data.labels[:IMAGES], len(CORRUPTIONS))
    figure = pyplot.figure(figsize=(9.4, 9.4), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=[6.3, 3.1], hspace=0.03)
    upper, lower = halves
    grid = upper.subplots(1 + len(SHOWN), ACROSS)
    for axes, number in zip(grid[0], range(FIRST, FIRST + ACROSS), strict=True):
        draw_photograph(axes, data.images[number])
        axes.set_xlabel(data.classes[data.labels[number]], fontsize=LARGE)
    grid[0, 0].set_ylabel("original", fontsize=LARGE)
    for row, corruption in zip(grid[1:], SHOWN, strict=True):
        draw_row(row, corruption, data, found)
    draw_line(lower.subplots(), {method: guess == labels for method, guess in found.items()})
    figure.savefig(PICTURE, dpi=125)


if __name__ == "__main__":
    main()
