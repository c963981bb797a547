"""The record of predictions: an SQLite file, written before a prediction is answered.

A batch is one transaction in write-ahead mode: a server that is killed at any moment has recorded
every prediction that it answered. A power cut may lose the last ones (`PRAGMA synchronous` is
NORMAL).
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from tapr.errors import DataError

TABLE = """
CREATE TABLE IF NOT EXISTS predictions (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,          -- seconds since 1970
    stream TEXT NOT NULL,
    batch INTEGER NOT NULL,      -- of the stream, from 1
    request TEXT NOT NULL,       -- the request's id
    image INTEGER NOT NULL,      -- of the request, from 0
    class INTEGER,               -- NULL where the logits were not finite
    probability REAL,
    mode TEXT NOT NULL           -- adapted, frozen or late
)
"""
INDEX = "CREATE INDEX IF NOT EXISTS by_request ON predictions (request)"


class Row(NamedTuple):
    """The prediction for one image."""

    stream: str
    batch: int
    request: str
    image: int
    predicted: int | None
    probability: float | None
    mode: str


def rows(stream: str, batch: int, request: str, probabilities: Tensor, mode: str) -> Iterator[Row]:
    """The rows that record a request's probabilities [B, K]."""
    values, classes = probabilities.max(1)
    for image, (value, place) in enumerate(zip(values.tolist(), classes.tolist(), strict=True)):
        predicted, probability = (place, value) if value == value else (None, None)
        yield Row(stream, batch, request, image, predicted, probability, mode)


class Journal:
    """Appends predictions to a file."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute(TABLE)
            self._file.execute(INDEX)
        except sqlite3.Error as error:
            raise DataError(f"cannot log predictions in {path}: {error}") from error

    def append(self, rows: Sequence[Row]) -> None:
        """Write the rows of a batch, all or none; they are in the file when this returns."""
        now = time.time()
        try:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                self._file.executemany(
                    "INSERT INTO predictions"
                    " (time, stream, batch, request, image, class, probability, mode)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    [(now, *row) for row in rows],
                )
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise DataError(f"predictions cannot be logged: {error}") from error

    def close(self) -> None:
        """Move everything from the write-ahead log into the one file."""
        self._file.close()
