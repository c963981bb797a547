"""One process of a group is killed, or stopped, again and again; the run is resumed until it ends.

    python -m benchmarks.sync_kills [--kills 20] [--sizes 2,3]

What runs is a cell of `tapr bench digits` (method `tent`), in processes forked from this one. At a
random moment a random one of them gets SIGKILL, or SIGSTOP in every fourth round. The others must
end by themselves, with a SyncError, soon after the timeout at the latest. The next round resumes,
in a group of another size in turn. At last its records are compared with those of a run that nobody
disturbed: predicted classes must be equal, and probabilities up to what a record rounds.
"""

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from tapr import records
from tapr.errors import SyncError
from tapr.runs import spec as specs
from tapr.runs import together
from tapr.runs.bench import Bench

TIMEOUT = 10  # seconds that processes wait for each other
OVERRIDES = {"methods": ["tent"], "batch_size": 20}
ENDED, NOTICED = 0, 3  # exit codes


def made(folder: Path, images: int) -> Bench:
    """The benchmark of one cell."""
    values = specs.values("digits")
    chosen = specs.make(specs.replaced(values, {**OVERRIDES, "images": images}, ()))
    bench = Bench(chosen, folder)
    bench.cells = bench.cells[:1]
    return bench


def work(rank: int, size: int, bench: Bench, meeting: Path) -> None:
    """One process of the group: the cell from where its file ends."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), together.VARIABLE: str(TIMEOUT)}
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=TIMEOUT),
    )
    try:
        for _ in bench.run(bench.cells[0]):
            pass
    except SyncError:
        os._exit(NOTICED)
    os._exit(ENDED)


def round_of(
    size: int, bench: Bench, disturb: tuple[float, int, int] | None
) -> tuple[list[int | None], float]:
    """Start a group, disturb one of it after some seconds; exit codes, and how long others took."""
    context: Any = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as meeting:
        arguments = (size, bench, Path(meeting) / "meeting")
        group = [context.Process(target=work, args=(rank, *arguments)) for rank in range(size)]
        for process in group:
            process.start()
        disturbed = None
        if disturb is not None:
            after, rank, number = disturb
            group[rank].join(after)
            if group[rank].exitcode is None:
                disturbed = group[rank]
                os.kill(disturbed.pid, number)
        began = time.monotonic()
        for process in group:
            if process is not disturbed:
                process.join(6 * TIMEOUT)
        took = time.monotonic() - began
        codes = [process.exitcode for process in group]
        for process in group:
            if process.exitcode is None:
                process.kill()
        return codes, took if disturbed is not None else 0.0


def likelihoods(folder: Path) -> tuple[list[list[int]], torch.Tensor]:
    """What a run predicted, and how likely it called the true classes."""
    (path,) = folder.glob("*.jsonl")
    run, _ = records.read(path)
    assert run.end is not None, "the run did not end"
    told = [value for batch in run.batches for value in batch.log_likelihoods or ()]
    return [batch.predicted for batch in run.batches], torch.tensor(told, dtype=torch.float64)


def main() -> None:
    """Disturb, resume, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--sizes", default="2,3")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(arguments.seed)
    sizes = [int(size) for size in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory() as place:
        quiet, loud = Path(place) / "quiet", Path(place) / "loud"
        calm, bench = made(quiet, arguments.images), made(loud, arguments.images)
        began = time.monotonic()
        codes, _ = round_of(sizes[0], calm, None)
        whole = time.monotonic() - began
        assert set(codes) == {ENDED}, codes
        expected = likelihoods(quiet)
        done, slowest, hangs, runs, number = 0, 0.0, 0, 0, 0
        while done < arguments.kills:
            size = sizes[number % len(sizes)]
            stop = number % 4 == 3
            disturb = (
                draw.uniform(0, whole),
                draw.randrange(size),
                signal.SIGSTOP if stop else signal.SIGKILL,
            )
            codes, took = round_of(size, bench, disturb)
            number += 1
            slowest = max(slowest, took)
            hangs += took > 2 * TIMEOUT
            disturbed = set(codes) != {ENDED}
            done += disturbed
            what = "SIGSTOP" if stop else "SIGKILL"
            print(f"{number}: {size} processes, {what}: exits {codes}, {took:.1f} s", flush=True)
            if not disturbed:
                runs += compared(loud, expected)
        if any(loud.glob("*.jsonl")):
            codes, _ = round_of(sizes[0], bench, None)
            assert set(codes) == {ENDED}, codes
            runs += compared(loud, expected)
    print(
        f"{done} disturbed of {number} starts, {hangs} hangs beyond {2 * TIMEOUT} s, the slowest"
        f" end {slowest:.1f} s after; {runs} resumed runs equal the undisturbed one"
    )


def compared(folder: Path, expected: tuple[list[list[int]], torch.Tensor]) -> bool:
    """Hold a finished run to the undisturbed one, and make room for the next."""
    found = likelihoods(folder)
    assert found[0] == expected[0], "other classes were predicted"
    torch.testing.assert_close(found[1], expected[1], rtol=2e-4, atol=2e-4)
    for path in folder.iterdir():
        path.unlink()
    return True


if __name__ == "__main__":
    main()
