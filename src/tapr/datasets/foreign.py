"""Data sets of others: torch's `Dataset`s and those of Hugging Face, by what they can do."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from PIL import Image

from tapr.datasets.base import Dataset, Labels, Pixels
from tapr.datasets.images import to_rgb
from tapr.datasets.lazy import LazyImages
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError

IMAGES = ("image", "img", "pixel_values", "images")  # what columns of images are called
LABELS = ("label", "labels", "fine_label", "target")


def as_dataset(data: Any, size: Preprocessing | None = None) -> Dataset:
    """A data set of ours as it is, or another's: its images are asked for when they are used.

    An element is a pair of image and label, an image alone, or a table with `image` and `label`;
    an image is Pillow's, an array [H, W, C] of 0 .. 255, or a tensor [C, H, W]. Labels come from
    the column of that name, from `targets`, or from reading every element once.
    """
    if isinstance(data, Dataset):
        return data
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")) or not len(data):
        raise DataError(
            "expected a data set of tapr, of torch (with len and [number]) or of Hugging Face, with"
            f" images in it, got {type(data).__name__}"
        )
    prepare = partial(_pixels, fit=size)
    shape = prepare(data[0]).shape
    names = [str(number) for number in range(len(data))]
    images = LazyImages(names, lambda name: data[int(name)], prepare, cast(Any, shape), threads=1)
    labels = _labels(data)
    classes = _classes(data, labels)
    return Dataset(type(data).__name__, cast(Pixels, images), labels, classes)


def _parts(element: Any) -> tuple[Any, Any]:
    """The image of an element, and its label or None."""
    if isinstance(element, Mapping):
        image = next((element[key] for key in IMAGES if key in element), None)
        return image, next((element[key] for key in LABELS if key in element), None)
    if isinstance(element, tuple | list):
        return element[0], element[1] if len(element) > 1 else None
    return element, None


def _pixels(element: Any, fit: Preprocessing | None) -> Pixels:
    image, _ = _parts(element)
    picture = image if isinstance(image, Image.Image) else Image.fromarray(_array(image))
    picture = to_rgb(picture)
    return np.asarray(picture) if fit is None else fit.prepare(picture)


def _array(image: Any) -> Pixels:
    """An array or tensor as uint8 [H, W, C]."""
    tensor = hasattr(image, "detach")
    try:
        array = np.asarray(image.detach().cpu() if tensor else image)
    except Exception as error:
        raise DataError(f"expected an image, got {type(image).__name__}") from error
    if array.ndim == 3 and tensor:
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim not in (2, 3) or array.dtype.kind not in "uif":
        raise DataError(f"expected an image, got {array.dtype} of shape {list(array.shape)}")
    if array.dtype.kind == "f":
        if not (array.size and array.min() >= 0 and array.max() <= 1):
            raise DataError("expected an image of floats in [0, 1]: leave its normalisation out")
        array = np.rint(255 * array)
    return array.astype(np.uint8)


def _labels(data: Any) -> Labels | None:
    columns: Iterable[str] = getattr(data, "column_names", None) or ()
    found: Any = next((data[key] for key in LABELS if key in columns), None)
    if found is None:
        found = getattr(data, "targets", None)
    if found is None:
        found = [_parts(data[number])[1] for number in range(len(data))]
        if any(label is None for label in found):
            return None
    return np.asarray([int(label) for label in found], np.int64)


def _classes(data: Any, labels: Labels | None) -> tuple[str, ...]:
    features = getattr(data, "features", None)
    if isinstance(features, Mapping):
        said = (getattr(features[key], "names", None) for key in LABELS if key in features)
        names = next((each for each in said if each), None)
    else:
        names = getattr(data, "classes", None)
    if isinstance(names, Sequence) and names:
        return tuple(map(str, names))
    return () if labels is None else tuple(str(number) for number in range(int(labels.max()) + 1))
