"""Names of the classes, and the true classes of images, where they are known."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from tapr import datasets
from tapr.errors import DataError, InputError


def class_names(path: Path | None, config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names in a file, or else those the model's config or training data gives; or none.

    The file has one name per line, or is JSON: a list, or numbers with names.
    """
    if path is not None:
        return _read_names(path)
    said = config.get("label_names") or datasets.class_names(str(config.get("dataset")))
    return tuple(map(str, said))


def check_count(names: Sequence[str], classes: int) -> None:
    """Refuse another number of names than the model has classes."""
    if names and len(names) != classes:
        raise InputError(
            f"expected {classes} class names, as many as the model has classes, got {len(names)}"
        )


class Truth:
    """The true class of an image by its path: from a CSV, or a folder named after the class."""

    def __init__(self, names: Sequence[str], path: Path | None = None) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self._path = path
        self._listed = None if path is None else dict(self._read(path))

    def __call__(self, name: str) -> int | None:
        """The class, or None where it is not known."""
        if self._listed is not None:
            return self._listed.get(name)
        return self._places.get(PurePosixPath(name).parent.name)

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
        if len(row) == 2 and row[1] in self._places:
            return self._places[row[1]]
        if len(row) == 2 and row[1].isdecimal() and len(row[1]) < 10:
            return int(row[1])
        hint = "" if all(map(_is_utf8, row[1:])) else "; the file's text is not UTF-8"
        raise DataError(
            f"{path}: expected rows of path,label (a class's name or number), got {row}{hint}"
        )


def _is_utf8(text: str) -> bool:
    """Did all bytes of a text that was read with `surrogateescape` make sense?"""
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
