"""Cells as tasks of Ray, on this machine or on a cluster; only the driver writes records.

A task gets the files of its cell so far, finishes the cell in a folder of its worker, and returns
the finished file. The driver puts that into the folder of the records, complete or not at all, so
that a cell which ran twice (a worker died or was cut off) is recorded once. A task has one thread,
like a local process, and makes the same records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch

from tapr import files, process, records, with_ray
from tapr.errors import InputError
from tapr.runs.parallel import ONE_THREAD, Cells, Event, reason, usable_cores
from tapr.runs.spec import Spec
from tapr.runs.sweep import Task

RETRIES = 10  # how often a cell is run again because its worker died
_STORE = 2**28  # bytes of a local Ray's object store; results are small


def run(
    tasks: Sequence[Task], folder: Path, jobs: int | None = None, address: str | None = None
) -> Iterator[Event]:
    """Run the cells on the cluster at `address`, or on a Ray of this machine with `jobs` cores.

    A cluster runs as many cells at once as it has cores. A failed cell is reported and the others
    go on.
    """
    if address is not None and jobs is not None:
        raise InputError(
            f"expected --jobs or --address, got both: the cluster at {address} runs as many cells"
            " at once as it has cores"
        )
    here = {"num_cpus": jobs or usable_cores(), "object_store_memory": _STORE}
    with with_ray.connected(address, ONE_THREAD, **here) as ray:
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_finish)
        running = {}
        for task in tasks:
            begun = _begun(folder, task.cell.file)
            graphics = int(task.spec.device.startswith("cuda"))
            made = remote.options(num_gpus=graphics).remote(task.spec, task.cell.file, begun)
            running[made] = task, begun
        while running:
            (ready, *_), _ = ray.wait(list(running))
            task, begun = running.pop(ready)
            yield Event("start", task.cell)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayError as error:
                result = f"its worker died {RETRIES + 1} times: {type(error).__name__}"
            if isinstance(result, str):
                yield Event("failed", task.cell, result)
            else:
                yield from _written(task, folder, result, begun)


def _begun(folder: Path, file: str) -> dict[str, bytes]:
    """The files that an interrupted run left of a cell: its records, and the adapter's states."""
    stem = file.removesuffix("jsonl")
    paths = folder.iterdir() if folder.is_dir() else ()
    return {path.name: path.read_bytes() for path in paths if path.name.startswith(stem)}


def _written(
    task: Task, folder: Path, content: bytes, begun: Mapping[str, bytes]
) -> Iterator[Event]:
    """Write a finished file, and yield the events that are new in it."""
    path = folder / task.cell.file
    with files.atomic(path) as part:
        part.write_bytes(content)
    for name in begun:
        if name != path.name:
            (folder / name).unlink(missing_ok=True)
    old = begun.get(path.name, b"").count(b"\n") - 1  # lines of batches
    for record in records.read(path)[0].batches[max(old, 0) :]:
        yield Event("batch", task.cell, record)
    yield Event("done", task.cell)


@cache
def _cells() -> Cells:
    """The cells of this worker, which has its own folder."""
    process.prepare()
    torch.set_num_threads(1)
    return Cells(Path(tempfile.mkdtemp(prefix="tapr-")))


def _finish(spec: Spec, file: str, begun: Mapping[str, bytes]) -> bytes | str:
    """On a worker: the finished file of a cell, or why there is none."""
    cells = _cells()
    try:
        for name, content in begun.items():
            (cells.folder / name).write_bytes(content)
        for _ in cells.run(spec, file):
            pass
        return (cells.folder / file).read_bytes()
    except Exception as error:
        return reason(error)
    finally:
        for path in cells.folder.iterdir():
            path.unlink()
