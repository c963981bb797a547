"""What a splash does to an image: water shines at its edges, mud covers."""

import cv2
import numpy as np

from tapr.corruptions import linear
from tapr.corruptions.common import Bytes, Floats, to_bytes, to_unit

TURQUOISE = np.array([175, 238, 238], np.float32) / 255
BROWN = np.array([63, 42, 20], np.float32) / 255
RELIEF = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]], np.float32)


def water(images: Bytes, liquid: Floats, strength: float) -> Bytes:
    """Lay pale turquoise where the layer [N, H, W] is wet, shaped by the distance to its edges."""
    shine = np.stack([_shine(layer) for layer in to_bytes(liquid)] or [liquid])
    peaks = shine.max(axis=(1, 2), keepdims=True)
    shine = np.divide(shine, peaks, out=np.zeros_like(shine), where=peaks > 0) * strength
    return to_bytes(to_unit(images) + shine[..., None] * TURQUOISE)


def _shine(layer: Bytes) -> Floats:
    edges = cv2.Canny(layer, 50, 150)
    distance = cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5)
    distance = cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(distance), cv2.CV_8U, RELIEF)
    return layer.astype(np.float32) * cv2.blur(relief, (3, 3))


def mud(images: Bytes, liquid: Floats, strength: float) -> Bytes:
    """Cover the image where the layer [N, H, W] is wet, with edges blurred by `strength`."""
    rows, columns = (linear.gaussian(size, strength) for size in images.shape[1:3])
    wet = (liquid > 0).astype(np.float32)[:, None]
    cover = linear.separable(wet, rows, columns)[:, 0, ..., None]
    cover = np.where(cover < 0.8, 0, cover)
    return to_bytes(to_unit(images) * (1 - cover) + BROWN * cover)
