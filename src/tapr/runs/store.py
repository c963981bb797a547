"""Runs on disk: a file that grows batch by batch, and beside it the adapter's saved states.

A state is named after the length that the file had when it was saved. A kill at any time leaves a
state and a file that fit together; batches in the file beyond that are cut off and done again.
"""

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

import tapr
from tapr import records
from tapr.adapters import Adapter
from tapr.errors import DataError, StateError, SyncError
from tapr.process import Uninterrupted
from tapr.records import BatchRecord, RunRecord

LOCK = ".lock"
SAVING = 0.05  # the share of the time that saving states may take
INTERRUPTIONS = (KeyboardInterrupt, SystemExit, GeneratorExit, SyncError)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder of runs, so that one process at a time writes into it.

    The lock's file stays there: if it were removed, two processes could each hold a lock.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK, timeout=0)
        lock.acquire()
    except Timeout as error:
        raise DataError(f"another tapr is writing into {folder}") from error
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


def save_state(adapter: Adapter, path: Path) -> None:
    """Save an adapter's state; raise a DataError if that fails, e.g. on a full disk."""
    try:
        adapter.save(path)
    except (StateError, OSError) as error:
        raise DataError(f"cannot save the adapter's state in {path}: {error}") from error


class Store:
    """A file that only grows, and the states of the adapter that its batches went through."""

    def __init__(self, file: Path, folder: Path, prefix: str = "") -> None:
        self.file = file
        self._folder = folder
        self._prefix = prefix
        self._length = 0  # of the file after the last whole batch
        self._saved = 0  # the length that the newest state belongs to
        self._batches = 0  # how many the adapter had predicted by then
        self._when = 0.0  # when that state was saved
        self._took = 0.0  # seconds that saving it took

    def resume(self, adapter: Adapter) -> int:
        """Return file and adapter to the newest state that fits; return the file's length.

        Without such a state the file is emptied and the adapter left as it is.
        """
        fitting = [found for found in self._states() if self._has_line_until(found[0])]
        length, state = max(fitting, default=(0, None))
        if state is not None:
            adapter.load(state)
        try:
            if self.file.exists():
                os.truncate(self.file, length)
        except OSError as error:
            raise DataError(f"cannot write {self.file}: {error.strerror or error}") from error
        self._length = self._saved = length
        self._batches = adapter.batches
        return length

    def append(self, data: bytes, adapter: Adapter | None = None) -> None:
        """Write a batch in one piece, and save the adapter's state after it when that is due.

        A state is due when the last save took at most `SAVING` of the time since then.
        """
        with Uninterrupted():
            self._length = self._write(data)
            self._batches = adapter.batches if adapter is not None else self._batches
            if adapter is not None and (time.monotonic() - self._when) * SAVING >= self._took:
                self._save(adapter)

    @contextmanager
    def kept(self, adapter: Adapter) -> Iterator[None]:
        """Save the state after the last whole batch when the block is interrupted.

        A batch that was predicted but not yet written has moved the adapter on: then nothing is
        saved, and the batches since the newest state are done again.
        """
        try:
            yield
        except INTERRUPTIONS:
            if self._length != self._saved and self._batches == adapter.batches:
                self._save(adapter)
            raise

    def forget(self, but: int | None = None) -> None:
        """Remove the saved states, except one, and incomplete files that a kill left."""
        for length, path in self._states():
            if length != but:
                path.unlink(missing_ok=True)
        for _, path in self._named(rf"\.{re.escape(self._prefix)}.*\.part"):
            path.unlink(missing_ok=True)

    def _has_line_until(self, length: int) -> bool:
        """Whether the file is at least that long, and a line ends there."""
        if length < 1 or not self.file.exists():
            return False
        with self.file.open("rb") as file:
            file.seek(length - 1)
            return file.read(1) == b"\n"

    def _write(self, data: bytes) -> int:
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("ab") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
                return file.tell()
        except OSError as error:
            raise DataError(f"cannot write {self.file}: {error.strerror or error}") from error

    def _save(self, adapter: Adapter) -> None:
        """Save the new state, then remove the older one: a kill between the two leaves both."""
        began = time.monotonic()
        save_state(adapter, self._folder / f"{self._prefix}{self._length}.state")
        self.forget(but=self._length)
        self._saved = self._length
        self._when = time.monotonic()
        self._took = self._when - began

    def _states(self) -> list[tuple[int, Path]]:
        found = self._named(rf"{re.escape(self._prefix)}(\d+)\.state")
        return [(int(match[1]), path) for match, path in found]

    def _named(self, pattern: str) -> list[tuple[re.Match[str], Path]]:
        """Files whose whole name matches a pattern; a glob would expand a `*` in the prefix."""
        paths = self._folder.iterdir() if self._folder.is_dir() else ()
        found = [(re.fullmatch(pattern, path.name), path) for path in paths]
        return [(match, path) for match, path in found if match]


class Journal:
    """The file of one run: new, unfinished or finished."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: RunRecord | None = None
        if path.exists() and b"\n" in path.read_bytes():  # else it was killed within its first line
            self.run, _ = records.read(path)
        self._store = Store(path, path.parent, f"{path.stem}.")

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return self.run is not None and self.run.end is not None

    def tidy(self) -> None:
        """Remove the states of a finished run, which a kill just after its end has left."""
        self._store.forget()

    def resume(self, adapter: Adapter) -> int:
        """Return adapter and file to the newest saved state; return the number of batches done."""
        length = self._store.resume(adapter)
        return self.path.read_bytes().count(b"\n") - 1 if length else 0

    def write(
        self, cell: Mapping[str, Any], adapter: Adapter, batches: Iterator[BatchRecord]
    ) -> Iterator[BatchRecord]:
        """Append each batch as it comes, then the end; save the adapter's state now and then.

        An interruption saves the state after the last batch, and so does closing this generator.
        """
        if not self.path.exists() or not self.path.stat().st_size:
            self._store.append(records.begin(cell, environment()).encode())
        with self._store.kept(adapter):
            for record in batches:
                self._store.append(records.batch_line(record).encode(), adapter)
                yield record
        end = {"peak_mib": peak_memory(), "ended": _now()}
        self._store.append(records.line("end", end).encode())
        self._store.forget()


def environment() -> dict[str, Any]:
    """The facts that a result may depend on besides its spec: versions, commit, machine, time."""
    return {
        "tapr": tapr.__version__,
        **{name: version(name) for name in ("torch", "numpy")},
        "python": platform.python_version(),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "began": _now(),
    }


def peak_memory() -> float | None:
    """The most memory this process has held so far, in MiB; None where the system does not say."""
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (2**20 if platform.system() == "Darwin" else 2**10), 1)


def _commit() -> str | None:
    """The commit of the package's own checkout, if it is in one."""
    here = Path(__file__).parent
    command = ["git", "-C", str(here), "rev-parse", "HEAD"]
    try:
        tracked = ["git", "-C", str(here), "ls-files", "--error-unmatch", Path(__file__).name]
        subprocess.run(tracked, capture_output=True, check=True)
        return subprocess.run(command, capture_output=True, check=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
