"""Cells as tasks of Ray, on this machine or on a cluster; the driver alone writes records.

A task gets what there is of its cell, finishes it in a folder of its worker's own, and returns the
finished file, which appears in the folder of the records whole or not at all. So a cell that ran
twice, because a worker died or was cut off, is there once. A task has one thread, as a local
process has, and its records are the same.
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

RETRIES = 10  # times that a cell runs again because its worker died
_STORE = 2**28  # bytes of a local Ray's object store; results are small


def run(
    tasks: Sequence[Task], folder: Path, jobs: int | None = None, address: str | None = None
) -> Iterator[Event]:
    """Run the cells on the cluster at `address`, or on a Ray of this machine with `jobs` cores.

    A cluster runs as many cells at once as it has cores. What fails is reported, the rest goes on.
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
    """What an interrupted run left of a cell: its file so far, and the adapter's states."""
    stem = file.removesuffix("jsonl")
    paths = folder.iterdir() if folder.is_dir() else ()
    return {path.name: path.read_bytes() for path in paths if path.name.startswith(stem)}


def _written(
    task: Task, folder: Path, content: bytes, begun: Mapping[str, bytes]
) -> Iterator[Event]:
    """Write a finished file, and say what is new in it."""
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
    """The cells of this worker, in a folder of its own."""
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
