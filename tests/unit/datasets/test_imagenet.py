"""The list of ImageNet's classes, as data."""

import re

from tapr.datasets import class_names, imagenet


def test_the_ids_are_a_thousand_and_in_order() -> None:
    ids = [found.wordnet for found in imagenet.classes()]
    assert len(ids) == 1000
    assert ids == sorted(set(ids))  # the order of ids is that of a checkpoint's outputs
    assert all(re.fullmatch(r"n\d{8}", wordnet) for wordnet in ids)
    assert all(found.words and all(found.words) for found in imagenet.classes())


def test_names_are_different_and_in_the_catalogue() -> None:
    assert len(set(imagenet.names())) == 1000
    assert class_names("imagenet") == imagenet.names()
    assert imagenet.names()[0] == "tench"
    assert imagenet.names()[281] == "tabby"
    assert imagenet.names()[999] == "toilet tissue"
