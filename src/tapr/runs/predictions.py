"""Predictions on disk: a CSV that grows batch by batch, and a folder beside it to resume from.

The folder holds the request (`run.json`) and, while the run is unfinished, the adapter's saved
state.
"""

import csv
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tapr import files
from tapr.adapters import Adapter
from tapr.errors import DataError, InputError
from tapr.runs.store import LOCK, Store, environment, locked

RECORD = "run.json"
_OURS = re.compile(rf"{re.escape(LOCK)}|\d+\.state|\..*\.part")  # files that a kill may leave


class Row(NamedTuple):
    """One image of the CSV; None means not known, and is an empty field in the file."""

    path: str
    predicted: int | None = None
    name: str | None = None
    confidence: float | None = None
    entropy: float | None = None  # in nats
    source_predicted: int | None = None  # by the unadapted model
    source_name: str | None = None
    source_confidence: float | None = None
    source_entropy: float | None = None
    label: int | None = None
    error: str | None = None
    health: str | None = None  # the verdict on its batch, and what the guard did: "harm unlearnt"


class Predictions:
    """The CSV of one run: new, unfinished or finished."""

    def __init__(self, path: Path) -> None:
        if path.is_dir():
            raise InputError(f"expected a file to write with --out, got the folder {path}")
        self.path = path
        self.folder = path.with_name(f"{path.name}.run")
        self._store = Store(path, self.folder)

    def check_free(self) -> None:
        """Raise the errors that `locked` would raise, but write nothing."""
        if self.folder.is_dir():
            with self.locked():
                pass

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder for this process; refuse a folder that tapr did not make."""
        names = os.listdir(self.folder) if self.folder.is_dir() else []
        if RECORD not in names and not all(map(_OURS.fullmatch, names)):
            raise DataError(
                f"the folder {self.folder} was not made by tapr adapt: choose another file with"
                " --out, or move the folder"
            )
        with locked(self.folder):
            yield

    def record(self) -> dict[str, Any] | None:
        """The request and the summary, which is None while unfinished; None for a new run."""
        path = self.folder / RECORD
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            if self.path.exists():
                raise DataError(
                    f"{self.path} already exists and was not written by tapr adapt: choose"
                    " another file with --out, or remove it"
                ) from error
            return None
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        return _checked(path, content)

    def begin(self, identity: Mapping[str, Any], **more: Any) -> None:
        """Save the request, and remove the files of an earlier run.

        A kill in between leaves the earlier run, or the new one before its first batch.
        """
        self._store.forget()
        content = {"identity": identity, "environment": environment(), "summary": None, **more}
        self._write(content)
        self.path.unlink(missing_ok=True)

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to resume a run that began with another request."""
        begun = (self.record() or {}).get("identity", {})
        now = json.loads(json.dumps(identity))
        for key in {**begun, **now}:
            if begun.get(key) != now.get(key):
                raise DataError(
                    f"{self.path} was started with {key} = {begun.get(key)}, now {now.get(key)};"
                    " give the same command to resume, another --out, or --no-resume to start again"
                )

    def resume(self, adapter: Adapter) -> None:
        """Return the adapter and the CSV to the newest saved state."""
        self._store.resume(adapter)

    def kept(self, adapter: Adapter) -> AbstractContextManager[None]:
        """Save the state after the last whole batch when the block is interrupted."""
        return self._store.kept(adapter)

    def append(self, rows: Iterable[Row], adapter: Adapter) -> None:
        """Write the rows of a batch in one piece, and save the adapter's state when it is due."""
        text = io.StringIO()
        if self._empty():
            _write_line(text, Row._fields)
        for row in rows:
            _write_line(text, map(_written, row))
        self._store.append(text.getvalue().encode("utf-8", "surrogateescape"), adapter)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Save the summary; the adapter's state is no longer needed."""
        self._write({**(self.record() or {}), "summary": summary})
        self.tidy()

    def tidy(self) -> None:
        """Remove the states of a finished run; a kill just after its end may have left some."""
        self._store.forget()

    def rows(self) -> Iterator[Row]:
        """The rows that the CSV holds."""
        if self._empty():
            return
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            lines = csv.reader(file)
            try:
                if tuple(next(lines, ())) != Row._fields:
                    raise DataError(f"{self.path} is not as tapr adapt wrote it: another first row")
                for line in lines:
                    yield _read(self.path, line)
            except csv.Error as error:
                raise DataError(f"{self.path} is not as tapr adapt wrote it: {error}") from error

    def _empty(self) -> bool:
        return not self.path.exists() or not self.path.stat().st_size

    def _write(self, content: Mapping[str, Any]) -> None:
        with files.atomic(self.folder / RECORD) as part:
            part.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def _checked(path: Path, content: Any) -> dict[str, Any]:
    """The content of a run.json, checked to be what `tapr adapt` writes there."""
    kinds = {"identity": dict, "classes": int, "summary": dict | None}
    for key, kind in kinds.items():
        if not isinstance(content, dict) or key not in content:
            raise DataError(f"{path} is damaged, or was not written by tapr adapt: no {key!r}")
        if not isinstance(content[key], kind):
            raise DataError(f"{path} is damaged: {key} is {content[key]!r}")
    return dict(content)


def _write_line(text: io.StringIO, fields: Iterable[str]) -> None:
    """Write a row; Python before 3.13 does not quote a carriage return by itself."""
    fields = list(fields)
    write = partial(csv.writer, text, lineterminator="\n")
    torn = any("\r" in field for field in fields)
    (write(quoting=csv.QUOTE_ALL) if torn else write()).writerow(fields)


def _written(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


_KINDS = (str, int, str, float, float, int, str, float, float, int, str, str)


def _read(path: Path, line: list[str]) -> Row:
    try:
        pairs = zip(_KINDS, line, strict=True)
        return Row(*(kind(text) if text else None for kind, text in pairs))  # type: ignore[arg-type]
    except ValueError as error:
        raise DataError(f"{path} is not as tapr adapt wrote it: {error} in {line}") from error
