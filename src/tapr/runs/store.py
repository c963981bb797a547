"""Runs on disk: one growing file each, beside it the adapter's state while it is under way."""

import os
import platform
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from tapr import records
from tapr.adapters import Adapter
from tapr.errors import DataError
from tapr.records import BatchRecord, RunRecord


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the right to write into a folder of runs; one command at a time."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        lock.acquire()
    except Timeout as error:
        raise DataError(f"another tapr is writing into {folder}") from error
    except OSError as error:
        raise DataError(f"cannot write into {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


class Journal:
    """The file of one run: finished, to be gone on with, or new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run: RunRecord | None = None
        if path.exists() and b"\n" in path.read_bytes():  # else killed within its first line
            self.run, _ = records.read(path)

    @property
    def finished(self) -> bool:
        """Is there nothing left to do?"""
        return self.run is not None and self.run.end is not None

    def resume(self, adapter: Adapter) -> int:
        """Bring the adapter and the file to the last batch that both know; return its number."""
        for done, state in sorted(self._states(), reverse=True):
            if self._keep(done):
                adapter.load(state)
                return done
        self._keep(0)
        return 0

    def write(
        self, cell: Mapping[str, Any], adapter: Adapter, batches: Iterator[BatchRecord]
    ) -> Iterator[BatchRecord]:
        """Append each batch as it comes, then the end; the adapter's state follows each batch."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                if not file.tell():
                    file.write(records.begin(cell, environment()))
                    file.flush()  # a report of what is under way finds more than an empty file
                for record in batches:
                    file.write(records.batch_line(record))
                    file.flush()
                    os.fsync(file.fileno())
                    self._save(adapter, record.number + 1)
                    yield record
                file.write(records.line("end", {"peak_mib": peak_memory(), "ended": _now()}))
        except OSError as error:
            raise DataError(f"cannot write {self.path}: {error.strerror or error}") from error
        self._forget()

    def _save(self, adapter: Adapter, done: int) -> None:
        """Save first, then drop the older state: a kill between the two leaves both."""
        adapter.save(self._state(done))
        self._forget(but=done)

    def _forget(self, but: int | None = None) -> None:
        for done, path in self._states():
            if done != but:
                path.unlink(missing_ok=True)

    def _state(self, done: int) -> Path:
        return self.path.with_suffix(f".{done}.state")

    def _states(self) -> list[tuple[int, Path]]:
        found = self.path.parent.glob(f"{self.path.stem}.*.state")
        return [(int(path.suffixes[-2][1:]), path) for path in found]

    def _keep(self, batches: int) -> bool:
        """Cut the file after so many batches; False when it has fewer good ones."""
        if not self.path.exists():
            return batches == 0
        lines = self.path.read_bytes().splitlines(keepends=True)
        wanted = batches + 1 if batches else 0
        good = [line for line in lines[:wanted] if line.endswith(b"\n")]
        if len(good) < wanted:
            return False
        os.truncate(self.path, sum(map(len, good)))
        return True


def environment() -> dict[str, Any]:
    """Versions, commit, machine and time: what a result may depend on besides its spec."""
    return {
        **{name: version(name) for name in ("tapr", "torch", "numpy")},
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
