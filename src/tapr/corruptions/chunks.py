"""Work through a batch in pieces that fit the processor's cache, on every core there is."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tapr.corruptions.common import Bytes

PIXELS = 1 << 17  # of a piece: 128 images of 32 x 32


def in_chunks(run: Callable[[slice], Bytes], shape: tuple[int, ...]) -> Bytes:
    """Call `run` for every slice of a batch of this shape, and put the results together."""
    count, height, width, _ = shape
    step = max(1, PIXELS // (height * width))
    parts = [slice(start, start + step) for start in range(0, count, step)]
    result = np.empty(shape, np.uint8)

    def fill(part: slice) -> None:
        result[part] = run(part)

    workers = min(len(parts), _cores())
    if workers < 2:
        for part in parts:
            fill(part)
        return result
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, parts))
    return result


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
