"""Runs cells in several processes with one thread each.

A cell is computed by the same code with one thread wherever it runs, so that the number of
processes changes nothing but the time. A process ends with its parent: otherwise it could write
into the same file as a process of the next run.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Literal, NamedTuple

import torch

from tapr import process
from tapr.errors import DataError, TaprError
from tapr.records import BatchRecord
from tapr.runs.bench import Bench, Cell
from tapr.runs.spec import Spec
from tapr.runs.sweep import Task

PATIENCE = 10  # seconds that a process has to end when it is asked to
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Event(NamedTuple):
    """News of a cell: it began, a batch is done, all batches are done, or it failed."""

    kind: Literal["start", "batch", "done", "failed"]
    cell: Cell
    detail: BatchRecord | str | None = None  # the batch, or why it failed


@dataclass
class Worker:
    """A process, the pipe to it, and the cell that it runs."""

    process: SpawnProcess
    pipe: Connection
    cell: Cell | None = None

    def give(self, task: Task) -> Event:
        """Let the process run a cell."""
        self.cell = task.cell
        with suppress(OSError):  # the process died: `hear` reports it
            self.pipe.send((task.spec, task.cell.file))
        return Event("start", task.cell)

    def hear(self) -> Event:
        """Wait for the next event of the process's cell."""
        assert self.cell is not None
        try:
            kind, detail = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return Event("failed", self.cell, f"its process died, {_how(self.process.exitcode)}")
        return Event(kind, self.cell, detail)

    def stop(self) -> None:
        """End the process, by force if it does not react."""
        self.process.terminate()
        self.process.join(PATIENCE)
        self.process.kill()
        self.process.join()


class Cells:
    """Runs the cells of a process one after another; data and model stay in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._bench: Bench | None = None

    def run(self, spec: Spec, file: str) -> Iterator[BatchRecord]:
        """Run the cell of a spec that has this file, from where the file ends."""
        if self._bench is None or self._bench.spec != spec:
            self._bench = Bench(spec, self.folder)
        found = [cell for cell in self._bench.cells if cell.file == file]
        if not found:
            raise DataError(
                f"expected the cell {file}, got a spec that makes none here: give every machine the"
                " same version of tapr, the same model and the same data"
            )
        yield from self._bench.run(found[0])


def reason(error: Exception) -> str:
    """Why a cell failed, for its event."""
    return str(error) if isinstance(error, TaprError) else f"{type(error).__name__}: {error}"


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(tasks: Sequence[Task], folder: Path, jobs: int) -> Iterator[Event]:
    """Run the cells, `jobs` at once; a failed cell is reported and the others go on."""
    waiting = deque(tasks)
    idle: list[Worker] = []
    busy: dict[Connection, Worker] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < jobs:
                worker = idle.pop() if idle else _start(folder)
                busy[worker.pipe] = worker
                yield worker.give(waiting.popleft())
            for pipe in connection.wait(list(busy)):
                assert isinstance(pipe, Connection)
                event = busy[pipe].hear()
                if event.kind != "batch":
                    worker = busy.pop(pipe)
                    idle += [worker] if worker.process.is_alive() else []
                yield event
    finally:
        for worker in [*idle, *busy.values()]:
            worker.stop()


def _start(folder: Path) -> Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    started = context.Process(target=_work, args=(theirs, folder), daemon=True)
    with process.variables(ONE_THREAD), _uninterrupted():
        started.start()
    theirs.close()
    return Worker(started, ours)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes started within do not receive Ctrl-C; the parent does, and ends them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows: `_work` ignores it
        yield
        return
    resource_tracker.ensure_running()  # its own start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(pipe: Connection, folder: Path) -> None:
    """The main loop of a worker: it runs cells until the parent ends it."""
    process.prepare()
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    Thread(target=_end_with_parent, daemon=True).start()
    cells = Cells(folder)
    while True:
        spec, file = pipe.recv()
        try:
            for record in cells.run(spec, file):
                pipe.send(("batch", record))
            pipe.send(("done", None))
        except Exception as error:
            pipe.send(("failed", reason(error)))


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _how(code: int | None) -> str:
    return f"killed by signal {-code}" if code and code < 0 else f"exit code {code}"
