"""The signs that a model which adapts is forgetting how to classify.

A model that collapses does so along the stream: its signs are looked for in the last part of it,
relative to what the unadapted model says about the same images. The thresholds lie between streams
of CIFAR-10 under each of 15 corruptions that gained accuracy (1,000 to 10,000 images, all methods
with their published learning rates), and Tent at 100 times its own, which ended near half of that.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

PARTS = 4  # of a stream; the first and the last are compared
ENOUGH = 200  # images in a part: then chance alone moves a share by 0.04 at most
FEW = 100  # images in all, below which nothing is said
TAKEOVER = 0.15  # growth of a class's share: 0.11 at most in the good streams, 0.17 to 0.25
NO_ENTROPY = 0.01  # of the most possible: sure models have some 0.05 on clean images ...
SHRUNK = 0.1  # ... and adaptation makes no model ten times as sure of what it did not know
FALL = 0.15  # of agreement, from the first part to the last: 0.08 at most, 0.16

Numbers = NDArray[np.float32]
Columns = Mapping[str, Numbers]


def first(values: Numbers | NDArray[np.bool_]) -> slice:
    """The first part of a stream; all of it when it is short."""
    return slice(0, _part(len(values)))


def last(values: Numbers | NDArray[np.bool_]) -> slice:
    """The last part of a stream; all of it when it is short."""
    return slice(len(values) - _part(len(values)), len(values))


def signs(columns: Columns, names: Sequence[str]) -> list[str]:
    """A sentence for each sign of a collapse."""
    if len(columns["predicted"]) < FEW:
        return []
    checks = (_takeover, _no_entropy, _fall)
    return [sentence for check in checks for sentence in check(columns, names)]


def _takeover(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    """Does a class lead, over the unadapted model or its even share, or over its own start?"""
    adapted, source = columns["predicted"], columns["source_predicted"]
    end = _shares(adapted[last(adapted)], names), _shares(source[last(source)], names)
    start = _shares(adapted[first(adapted)], names), _shares(source[first(source)], names)
    lead = end[0] - np.maximum(end[1], 1 / len(names))  # a model stuck on one class leaves others 0
    growth = np.maximum(lead, end[0] - start[0] - (end[1] - start[1]))
    top = int(growth.argmax())
    if growth[top] > TAKEOVER:
        yield (
            f"one class is taking over: {end[0][top]:.0%} of the last {_part(len(adapted)):,}"
            f" images are called {names[top]} ({end[1][top]:.0%} by the unadapted model), of the"
            f" first {start[0][top]:.0%} ({start[1][top]:.0%})"
        )


def _no_entropy(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    adapted, source = (
        float(columns[name][last(columns[name])].mean()) for name in ("entropy", "source_entropy")
    )
    if adapted < NO_ENTROPY * math.log(len(names)) and adapted < SHRUNK * source:
        yield (
            f"entropy is at zero: {adapted:.4f} nats at the end, {source:.4f} by the unadapted"
            " model; the adapted one is sure of everything"
        )


def _fall(columns: Columns, names: Sequence[str]) -> Iterator[str]:
    same = columns["predicted"] == columns["source_predicted"]
    start, end = float(same[first(same)].mean()), float(same[last(same)].mean())
    if start - end > FALL:
        yield (
            f"agreement with the unadapted model falls along the stream, from {start:.0%} to"
            f" {end:.0%}: the model drifts, or the images do"
        )


def _shares(predicted: Numbers, names: Sequence[str]) -> NDArray[np.float64]:
    return np.bincount(predicted.astype(int), minlength=len(names)) / len(predicted)


def _part(images: int) -> int:
    part = images // PARTS
    return part if part >= ENOUGH else images
