"""Predictions on disk: a CSV that grows batch by batch, and a folder beside it to go on from.

The folder holds what was asked for (`run.json`) and, while the run is under way, the adapter's
state, named after the length the CSV had at that moment: a kill at any time leaves a pair of the
two that fit together, and what the CSV has beyond that is cut off and done again.
"""

import csv
import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from tapr import files
from tapr.adapters import Adapter
from tapr.errors import DataError
from tapr.runs.store import environment, locked

RECORD = "run.json"
SAVING = 0.05  # the share of the time that may go into saving states


class Row(NamedTuple):
    """One image of the CSV; what is not known is None, and an empty field in the file."""

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


class Predictions:
    """The CSV of one run: new, to be gone on with, or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.folder = path.with_name(f"{path.name}.run")
        self._saved = 0.0  # when the last state had been written
        self._took = 0.0  # how long that took

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the right to write; one process at a time."""
        try:
            with locked(self.folder):
                yield
        finally:
            if self.folder.exists() and not (self.folder / RECORD).exists():
                rmtree(self.folder, ignore_errors=True)  # nothing has come of it

    def record(self) -> dict[str, Any] | None:
        """What was asked for and has come of it so far; None for a new run."""
        try:
            return dict(json.loads((self.folder / RECORD).read_text()))
        except FileNotFoundError as error:
            if self.path.exists():
                raise DataError(
                    f"{self.path} is there already and was not written by tapr adapt: choose"
                    " another file with --out, or remove it"
                ) from error
            return None
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{self.folder / RECORD} is damaged: {error}") from error

    def discard(self) -> None:
        """Remove what an earlier run has left."""
        self.path.unlink(missing_ok=True)
        (self.folder / RECORD).unlink(missing_ok=True)
        self._forget()

    def begin(self, identity: Mapping[str, Any], **more: Any) -> None:
        """Write down what is asked for, before anything else."""
        content = {"identity": identity, "environment": environment(), "summary": None, **more}
        self._write(content)

    def check_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with a run that something else was asked of."""
        begun = (self.record() or {}).get("identity", {})
        now = json.loads(json.dumps(identity))
        for key in {**begun, **now}:
            if begun.get(key) != now.get(key):
                raise DataError(
                    f"{self.path} was begun with {key} = {begun.get(key)}, now {now.get(key)}: give"
                    " the same command to go on, another --out, or --no-resume to start anew"
                )

    def resume(self, adapter: Adapter) -> None:
        """Bring the adapter and the CSV to the last moment that both know."""
        length = self.path.stat().st_size if self.path.exists() else 0
        for known, state in sorted(self._states(), reverse=True):
            if known <= length:
                os.truncate(self.path, known)
                adapter.load(state)
                return
        self.path.unlink(missing_ok=True)

    def append(self, rows: Iterable[Row], adapter: Adapter) -> None:
        """Write the rows of a batch in one piece, and the adapter's state when it is time."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        try:
            with self.path.open("ab") as file:
                if not file.tell():
                    writer.writerow(Row._fields)
                writer.writerows(map(_written, rows))
                file.write(text.getvalue().encode("utf-8", "surrogateescape"))
                file.flush()
                os.fsync(file.fileno())
                length = file.tell()
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror or error}") from error
        began = time.monotonic()
        if (began - self._saved) * SAVING >= self._took:
            adapter.save(self.folder / f"{length}.state")
            self._forget(but=length)
            self._saved = time.monotonic()
            self._took = self._saved - began

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write down what has come of it; the adapter's state is no longer needed."""
        self._write({**(self.record() or {}), "summary": summary})
        self._forget()

    def rows(self) -> Iterator[Row]:
        """What the CSV holds."""
        if not self.path.exists():
            return
        with self.path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            lines = csv.reader(file)
            if tuple(next(lines, ())) != Row._fields:
                raise DataError(f"{self.path} is not as tapr adapt wrote it: its head is another")
            for line in lines:
                yield _read(self.path, line)

    def _write(self, content: Mapping[str, Any]) -> None:
        with files.atomic(self.folder / RECORD) as part:
            part.write_text(json.dumps(content, indent=2) + "\n")

    def _states(self) -> list[tuple[int, Path]]:
        return [(int(path.stem), path) for path in self.folder.glob("*.state")]

    def _forget(self, but: int | None = None) -> None:
        halves = [(None, path) for path in self.folder.glob(".*.part")]  # of a kill while saving
        for length, path in [*self._states(), *halves]:
            if length is None or length != but:
                path.unlink(missing_ok=True)


def _written(row: Row) -> list[str]:
    return [
        "" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
        for value in row
    ]


_KINDS = (str, int, str, float, float, int, str, float, float, int, str)


def _read(path: Path, line: list[str]) -> Row:
    try:
        pairs = zip(_KINDS, line, strict=True)
        return Row(*(kind(text) if text else None for kind, text in pairs))  # type: ignore[arg-type]
    except ValueError as error:
        raise DataError(f"{path} is not as tapr adapt wrote it: {error} in {line}") from error
