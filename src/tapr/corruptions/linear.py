"""Linear maps along rows and columns, as small matrices: batched, and the same for any batch."""

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Edge = Literal["nearest", "reflect"]  # scipy's words
Planes = NDArray[np.float32]  # [N, C, H, W]


def separable(planes: Planes, rows: Planes, columns: Planes) -> Planes:
    """Apply `rows` [H', H] down every column and `columns` [W', W] along every row."""
    return rows @ (planes @ columns.T)


@lru_cache(maxsize=64)
def gaussian(size: int, sigma: float, mode: Edge = "nearest", truncate: float = 4.0) -> Planes:
    """The matrix [size, size] of a Gaussian filter."""
    identity = np.eye(size)
    return _frozen(ndimage.gaussian_filter1d(identity, sigma, 0, mode=mode, truncate=truncate))


@lru_cache(maxsize=256)
def centre_zoom(size: int, factor: float) -> Planes:
    """The matrix [size, size] that enlarges the middle of a line, bilinear, corners aligned."""
    cropped = int(np.ceil(size / factor))
    top = (size - cropped) // 2
    identity = np.eye(size)[top : top + cropped]
    enlarged = ndimage.zoom(identity, (factor, 1), order=1)
    trim = (len(enlarged) - size) // 2
    return _frozen(enlarged[trim : trim + size])


def _frozen(matrix: NDArray[np.float64]) -> Planes:
    frozen = np.ascontiguousarray(matrix, np.float32)
    frozen.flags.writeable = False
    return frozen
