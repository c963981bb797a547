"""Classes of the data find their output of the model: by name, WordNet id, number, or order."""

import pytest

from tapr.datasets import imagenet
from tapr.errors import ModelError
from tapr.runs.labels import Truth, numbered, places


@pytest.mark.parametrize(
    ("classes", "names", "outputs", "expected"),
    [
        (["n01440764", "n01443537"], imagenet.names(), 1000, [0, 1]),
        (["tench", "Great_Grey_Owl", "toilet tissue"], imagenet.names(), 1000, [0, 24, 999]),
        (["Tinca tinca", "tench, Tinca tinca"], (), 1000, [0, 0]),
        (["n01443537", "n99999999"], (), 1000, [1, None]),
        (["000", "002", "998"], imagenet.names(), 1000, [0, 2, 998]),
        (["2", "0", "1"], (), 3, [2, 0, 1]),
        (["1", "2", "3"], (), 3, [0, 1, 2]),  # not numbers from 0 on: the order
        (["dog", "cat"], ("cat", "dog", "owl"), 3, [1, 0]),
        (["red", "blue"], (), 2, [0, 1]),
        (["red", "blue"], ("rot", "blau"), 2, [0, 1]),
    ],
)
def test_places(
    classes: list[str], names: tuple[str, ...], outputs: int, expected: list[int | None]
) -> None:
    assert places(classes, names, outputs) == expected


def test_a_word_that_means_two_classes_finds_neither() -> None:
    assert places(["crane", "tench", "crane (n02012849)"], (), 1000) == [None, 0, 134]


def test_data_of_other_classes_is_refused_with_what_both_have() -> None:
    with pytest.raises(ModelError, match=r"a model of 3, cat, dog, owl, .* data of 2: red, blue"):
        places(["red", "blue"], ("cat", "dog", "owl"), 3)


def test_outputs_without_names_are_called_as_the_data_calls_them() -> None:
    assert list(numbered(["owl", "cat"], [3, 0], 4)) == ["cat", "1", "2", "owl"]


def test_the_folder_of_an_image_may_be_a_wordnet_id() -> None:
    truth = Truth(imagenet.names())
    assert truth("val/n01443537/a.jpg") == 1
    assert truth("val/goldfish/a.jpg") == 1
    assert truth("val/holiday/a.jpg") is None
