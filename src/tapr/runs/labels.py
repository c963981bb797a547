"""The names of the classes, and the true classes of images where they are known."""

import csv
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from tapr import datasets
from tapr.datasets import imagenet
from tapr.errors import DataError, InputError, ModelError
from tapr.streams import Domain

_log = logging.getLogger("tapr.runs")


def class_names(path: Path | None, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The class names in a file, or else those of the model's config or training data, if any.

    The file has one name per line, or is JSON: a list, or numbers with names.
    """
    if path is not None:
        return _read_names(path)
    said = config.get("label_names") or datasets.class_names(str(config.get("dataset")))
    return tuple(map(str, said))


def check_count(names: Sequence[str], classes: int) -> None:
    """Refuse names that are not as many as the model's classes."""
    if names and len(names) != classes:
        raise InputError(
            f"expected {classes} class names, as many as the model has classes, got {len(names)}"
        )


def places(classes: Sequence[str], names: Sequence[str], outputs: int) -> list[int | None]:
    """The model's output for each class of the data; None for a class that it does not have.

    A class is found by its name, its WordNet id, or its number. Where none is found and the counts
    are equal, the order decides.

    >>> places(["dog", "cat", "yeti"], ["cat", "dog"], 2)
    [1, 0, None]
    >>> places(["n01443537", "n01440764"], [], 1000), places(["002", "000"], [], 4)
    ([1, 0], [2, 0])
    """
    known = _known(names or (imagenet.names() if outputs == len(imagenet.classes()) else ()))
    found = [known.get(_plain(name)) for name in classes]
    if any(place is not None for place in found):
        return found
    if all(name.isdecimal() and len(name) < 10 for name in classes):
        numbers: list[int | None] = [int(name) for name in classes]
        if max(int(name) for name in classes) < outputs:
            return numbers
    if len(classes) == outputs:
        return list(range(outputs))
    called = f", {', '.join(names[:3])}, ..." if names else ""
    raise ModelError(
        f"expected a model and data of the same classes, got a model of {outputs}{called} and data"
        f" of {len(classes)}: {', '.join(classes[:5])}, ...; name the folders after the model's"
        " classes, by name, WordNet id or number"
    )


def placed(domain: Domain, names: Sequence[str], outputs: int) -> Domain:
    """The domain with the model's outputs as labels, without images of unknown classes."""
    if domain.labels is None:
        return domain
    found = places(domain.classes, names, outputs)
    missing = [name for name, place in zip(domain.classes, found, strict=True) if place is None]
    if missing:
        _log.warning(
            "%s: the model has no output for %d of %d classes, whose images are left out: %s",
            *(domain.origin, len(missing), len(found), ", ".join(missing[:5])),
        )
    labels = np.array([-1 if place is None else place for place in found])[domain.labels]
    known = labels >= 0
    if not known.any():
        raise DataError(f"{domain.origin}: expected images of the model's classes, got none")
    classes = tuple(names) or tuple(numbered(domain.classes, found, outputs))
    return replace(domain, numbers=domain.numbers[known], labels=labels[known], classes=classes)


def numbered(classes: Sequence[str], places: Sequence[int | None], outputs: int) -> Iterator[str]:
    """Names for the outputs of a model without class names: those of the data, or numbers."""
    called = {place: name for name, place in zip(classes, places, strict=True)}
    return (called.get(output, str(output)) for output in range(outputs))


def _known(names: Sequence[str]) -> Mapping[str, int]:
    """Every text by which one of these classes may be named, and the place of the class."""
    if tuple(names) == imagenet.names():
        return _of_imagenet()
    return {_plain(name): place for place, name in enumerate(names)}


@cache
def _of_imagenet() -> Mapping[str, int]:
    """The class of ImageNet for every WordNet id, and every word that means one class only."""
    found: dict[str, int] = {}
    called = [{*each.words, ", ".join(each.words)} for each in imagenet.classes()]
    count = Counter(_plain(word) for words in called for word in words)
    for place, (each, name) in enumerate(zip(imagenet.classes(), imagenet.names(), strict=True)):
        words = [word for word in called[place] if count[_plain(word)] == 1]
        found |= {_plain(word): place for word in (each.wordnet, name, *words)}
    return found


def _plain(name: str) -> str:
    return name.replace("_", " ").strip().casefold()


class Truth:
    """The true class of an image by its path: from a CSV, or from the name of its folder."""

    def __init__(self, names: Sequence[str], path: Path | None = None) -> None:
        self._places = _known(names)
        self._path = path
        self._listed = None if path is None else dict(self._read(path))

    def __call__(self, name: str) -> int | None:
        """The class, or None where it is not known."""
        if self._listed is not None:
            return self._listed.get(name)
        return self._places.get(_plain(PurePosixPath(name).parent.name))

    def check(self, classes: int) -> None:
        """Refuse a label that is none of the model's classes."""
        for name, label in (self._listed or {}).items():
            if label >= classes:
                raise DataError(
                    f"{self._path}: expected labels from 0 to {classes - 1}, as the model has"
                    f" {classes} classes, got {label} for {name}"
                )

    def _read(self, path: Path) -> list[tuple[str, int]]:
        try:
            with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
                rows = [row for row in csv.reader(file) if row]
        except (OSError, csv.Error) as error:
            raise DataError(f"cannot read {path}: {error}") from error
        if rows and rows[0] == ["path", "label"]:
            del rows[0]
        return [(row[0], self._class(path, row)) for row in rows]

    def _class(self, path: Path, row: list[str]) -> int:
        if len(row) == 2 and _plain(row[1]) in self._places:
            return self._places[_plain(row[1])]
        if len(row) == 2 and row[1].isdecimal() and len(row[1]) < 10:
            return int(row[1])
        hint = "" if all(map(_is_utf8, row[1:])) else "; the file's text is not UTF-8"
        raise DataError(
            f"{path}: expected rows of path,label (a class's name or number), got {row}{hint}"
        )


def _is_utf8(text: str) -> bool:
    """Whether a text that was read with `surrogateescape` was valid UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in text)


def _read_names(path: Path) -> tuple[str, ...]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix != ".json":
            return tuple(line.strip() for line in text.splitlines() if line.strip())
        content = json.loads(text)
        if isinstance(content, dict):
            content = [content[str(place)] for place in range(len(content))]
        if not isinstance(content, list):
            raise ValueError(f"expected a list or an object, got {type(content).__name__}")
    except UnicodeDecodeError as error:
        raise DataError(f"cannot read class names from {path}: its text is not UTF-8") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot read class names from {path}: {error}") from error
    except KeyError as error:
        raise DataError(f"{path}: expected a name for every class, none for {error}") from error
    return tuple(map(str, content))
