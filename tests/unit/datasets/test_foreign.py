"""Data sets of torch and of Hugging Face are accepted wherever a data set is."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tapr import datasets, streams
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 8, 9, 3), np.uint8)
LABELS = [2, 0, 1, 1, 2]


class Torch(torch.utils.data.Dataset[Any]):
    """As torchvision's are: pairs, and `classes`."""

    classes = ["ant", "bee", "cat"]

    def __len__(self) -> int:
        return 5

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return torch.from_numpy(PIXELS[number]).permute(2, 0, 1) / 255, LABELS[number]


class HuggingFace:
    """As those of the package `datasets` are: rows by number, columns by name, features."""

    column_names = ["image", "label"]
    features = {"image": None, "label": SimpleNamespace(names=["ant", "bee", "cat"])}

    def __len__(self) -> int:
        return 5

    def __getitem__(self, key: int | str) -> Any:
        if key == "label":
            return LABELS
        assert isinstance(key, int), "a column of images would decode them all"
        return {"image": Image.fromarray(PIXELS[key]), "label": LABELS[key]}


@pytest.mark.parametrize("data", [Torch(), HuggingFace()], ids=["torch", "hugging face"])
def test_images_labels_and_classes(data: Any) -> None:
    found = datasets.as_dataset(data)
    assert np.array_equal(found.images[:], PIXELS)
    assert found.labels is not None
    assert found.labels.tolist() == LABELS
    assert found.classes == ("ant", "bee", "cat")
    small = datasets.as_dataset(data, Preprocessing((3, 4, 4)))
    assert small.images[np.array([1, 0])].shape == (2, 4, 4, 3)
    assert datasets.as_dataset(found) is found


@pytest.mark.parametrize("data", [Torch(), HuggingFace()], ids=["torch", "hugging face"])
def test_in_a_stream(data: Any) -> None:
    domains = [streams.clean(data), *streams.corrupted(data, ["brightness"], [3])]
    batches = list(streams.Stream(domains, 3))
    assert [len(batch.images) for batch in batches] == [3, 2, 3, 2]
    assert torch.equal(batches[0].images[0], torch.from_numpy(PIXELS[0]).permute(2, 0, 1) / 255)
    assert batches[1].labels is not None
    assert batches[1].labels.tolist() == LABELS[3:]
    ours = streams.corrupted(datasets.as_dataset(data), ["brightness"], [3])[0]
    assert np.array_equal(ours.read(ours.numbers), domains[1].read(domains[1].numbers))


def test_images_alone_grey_ones_and_labels_without_names() -> None:
    alone = datasets.as_dataset([Image.fromarray(part) for part in PIXELS])
    assert (alone.labels, alone.classes, len(alone)) == (None, (), 5)
    grey = datasets.as_dataset([(np.full((4, 4), 7, np.uint8), 1)])
    assert grey.images[0].tolist() == [[[7] * 3] * 4] * 4
    assert grey.classes == ("0", "1")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (3, "expected a data set of tapr, of torch .* got int"),
        ([], "with images in it, got list"),
        ([("nothing", 0)], "expected an image"),
        ([(torch.full((3, 4, 4), -2.0), 0)], r"floats in \[0, 1\]: leave its normalisation out"),
    ],
)
def test_what_is_none(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        datasets.as_dataset(data)


def test_the_package_datasets_itself() -> None:
    package = pytest.importorskip("datasets", reason="Hugging Face's package is not installed")
    features = package.Features(
        {"image": package.Image(), "label": package.ClassLabel(names=["ant", "bee", "cat"])}
    )
    rows = {"image": [Image.fromarray(part) for part in PIXELS], "label": LABELS}
    found = datasets.as_dataset(package.Dataset.from_dict(rows, features=features))
    assert np.array_equal(found.images[:], PIXELS)
    assert found.labels is not None
    assert found.labels.tolist() == LABELS
    assert found.classes == ("ant", "bee", "cat")
