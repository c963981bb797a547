"""`load`, the catalogue, and what a Dataset checks."""

from pathlib import Path

import numpy as np
import pytest

from tapr import cache, datasets
from tapr.datasets import DATASETS, Dataset, class_names, is_sized
from tapr.errors import DataError, InputError, UnknownNameError


def test_unknown_name() -> None:
    with pytest.raises(
        UnknownNameError, match="unknown data set 'cifra10'; did you mean 'cifar10'"
    ):
        datasets.load("cifra10")


def test_options_that_do_not_apply(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="digits has its own image size"):
        datasets.load("digits", size=3)
    with pytest.raises(InputError, match="a folder has one split"):
        datasets.load(f"folder:{tmp_path}", split="train")


def test_the_hashes_are_the_known_ones() -> None:
    """Of the decoded arrays, as the data's reference states them."""
    cifar10, cifar100 = (vars(DATASETS[name])["hashes"] for name in ("cifar10", "cifar100"))
    assert cifar10["test", "images"][:8] == "f9b1e213"
    assert cifar10["train", "images"][:8] == "47af8b02"
    assert cifar100["test", "images"][:8] == "4cb8e5d9"
    assert cifar100["train", "images"][:8] == "4e457917"


def test_every_data_set_names_its_classes() -> None:
    sets = [name for name in DATASETS if name == "imagenet" or not is_sized(name)]
    counts = {name: len(class_names(name)) for name in sets}
    others = {"cifar100": 100, "cifar100c": 100, "visda": 12, "imagenet": 1000}
    assert counts == dict.fromkeys(sets, 10) | others
    assert class_names("cifar10")[3] == "cat"
    assert class_names("cifar100")[49] == "mountain"
    assert sorted(class_names("cifar100")) == list(class_names("cifar100"))
    assert class_names("folder:photos") == ()


def test_labels_must_match() -> None:
    images = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(DataError, match="got 3 labels for 2 images"):
        Dataset("x", images, np.zeros(3, np.int64), ("a",))
    with pytest.raises(DataError, match="expected labels from 0 to 0, got 0 to 1"):
        Dataset("x", images, np.arange(2), ("a",))


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TAPR_CACHE", str(tmp_path / "x"))
    assert cache.folder() == tmp_path / "x"
    monkeypatch.delenv("TAPR_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder().name in ("tapr", "Cache")


def test_sha256_is_of_the_values(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    assert cache.sha256(array) == cache.sha256(np.asfortranarray(array))
    (tmp_path / "file").write_bytes(array.tobytes())
    assert cache.sha256(tmp_path / "file") == cache.sha256(array)
