"""Images of the source data, given as a tensor, as batches, or by a data set's name."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tapr import datasets
from tapr.adapters.checks import check_images
from tapr.errors import InputError


def batches(
    source_images: object, model: nn.Module, *, count: int, size: int, split: str
) -> list[Tensor]:
    """At most `count` images in batches of `size`, as the model takes them.

    `source_images` is a tensor [N, C, H, W] in [0, 1]; an iterable of such tensors, or of tuples
    that begin with one, as loaders give; or the name of a data set, of which evenly spaced images
    are taken.
    """
    if isinstance(source_images, str):
        images = _of_data_set(source_images, count, split)
    elif isinstance(source_images, Tensor):
        images = source_images[:count]
    elif isinstance(source_images, Iterable):
        images = _joined(source_images, count)
    else:
        raise InputError(
            "expected source_images as a tensor, batches of images, or the name of a data set, got"
            f" {type(source_images).__name__}"
        )
    if not len(images):
        raise InputError("expected at least one source image, got none")
    reference = next(model.parameters(), images)
    return list(torch.split(check_images(images.to(reference), model), size))


def labelled(name: str, *, count: int, split: str) -> tuple[Tensor, Tensor]:
    """At most `count` evenly spaced images of a data set, and their labels."""
    data = datasets.load(name) if name.startswith(datasets.FOLDER) else datasets.load(name, split)
    if data.labels is None:
        raise InputError(f"expected source images with labels, got {name}, which has none")
    places = np.unique(np.linspace(0, len(data) - 1, min(count, len(data))).round().astype(int))
    labels = torch.from_numpy(np.asarray(data.labels)[places]).long()
    return _of_data_set(name, count, split), labels


def _of_data_set(name: str, count: int, split: str) -> Tensor:
    data = datasets.load(name) if name.startswith(datasets.FOLDER) else datasets.load(name, split)
    places = np.unique(np.linspace(0, len(data) - 1, min(count, len(data))).round().astype(int))
    pixels = torch.from_numpy(np.asarray(data.images[places]))
    return pixels.permute(0, 3, 1, 2).float() / 255


def _joined(given: Iterable[Any], count: int) -> Tensor:
    taken = list(_until(given, count))
    if not taken:
        raise InputError("expected at least one source image, got none")
    return torch.cat(taken)[:count]


def _until(given: Iterable[Any], count: int) -> Iterator[Tensor]:
    """The images of batches, until there are enough of them."""
    seen = 0
    for batch in given:
        images = batch[0] if isinstance(batch, tuple | list) else batch
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError(
                "expected batches of source images [B, C, H, W], got "
                + (str(list(images.shape)) if isinstance(images, Tensor) else type(images).__name__)
            )
        yield images
        seen += len(images)
        if seen >= count:
            return
