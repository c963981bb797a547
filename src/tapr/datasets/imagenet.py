"""The 1,000 classes of ImageNet: WordNet ids and names, in the order of a checkpoint's outputs."""

from collections import Counter
from functools import cache
from importlib.resources import files
from typing import NamedTuple

NAME = "imagenet"


class Class(NamedTuple):
    """A class of ImageNet."""

    wordnet: str  # its id, as folders of ImageNet are called
    words: tuple[str, ...]  # that mean the same, the most common first


@cache
def classes() -> tuple[Class, ...]:
    """The classes in order; imagenet.tsv says where the list is from.

    >>> classes()[1]
    Class(wordnet='n01443537', words=('goldfish', 'Carassius auratus'))
    """
    text = (files("tapr.datasets") / "imagenet.tsv").read_text("utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return tuple(Class(wordnet, tuple(words.split(", "))) for wordnet, words in rows)


@cache
def names() -> tuple[str, ...]:
    """A name for each class that no other class has: its first word, and more where that is needed.

    >>> names()[134], names()[517], names()[639]
    ('crane (n02012849)', 'crane (n03126707)', 'maillot, tank suit')
    """
    first = Counter(found.words[0] for found in classes())
    whole = Counter(", ".join(found.words) for found in classes())
    return tuple(_name(found, first, whole) for found in classes())


def _name(found: Class, first: Counter[str], whole: Counter[str]) -> str:
    words = ", ".join(found.words)
    if first[found.words[0]] == 1:
        return found.words[0]
    return words if whole[words] == 1 else f"{words} ({found.wordnet})"
