"""What adapting together costs: seconds beside two processes that do not, and bytes per batch.

    python -m benchmarks.sync [--models small,cifar10-small] [--methods tent,steady] [--images 64]

Two processes of one thread each share this machine. In turns they adapt together (`sync="auto"`)
and apart (`sync=False`), on the same batches of the same size. The ratios are those of the medians:
of the time on the clock, in which waiting for the other counts, and of the processor's time, which
other work on the machine does not change. Bytes and messages are what one process hands over in a
batch, by what it is. On paper, a gathering process receives that from each of the others, a
reduction moves it about twice, and every message takes a while by itself.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed, nn

import tapr
from tapr import sync
from tapr.testing import small_model

METHODS = "norm,tent,steady,pest"
MODELS = "small,cifar10-small"
# Bytes a second, and seconds that a message takes by itself.
LINKS = {"10 Gbit/s": (1.25e9, 1e-4), "100 Gbit/s": (12.5e9, 3e-5), "NVLink": (3e11, 1e-5)}


def made(name: str) -> tuple[nn.Module, tuple[int, int, int]]:
    """A model, and the size of its images."""
    if name == "small":
        return small_model(), (3, 10, 9)
    return tapr.models.load(name), (3, 32, 32)


def counted(traffic: Counter[str]) -> Callable[..., None]:
    """The one function through which processes talk, counting what this one hands over."""
    plain = sync._together

    def together(collective: Callable[..., Any], *given: Any) -> None:
        own: Tensor = given[-1] if collective is distributed.all_gather else given[0]
        traffic[kind(collective, own)] += own.nbytes
        traffic["messages"] += 1
        plain(collective, *given)

    return together


def kind(collective: Callable[..., Any], tensor: Tensor) -> str:
    """What is sent, told by how and in which shape."""
    if collective is distributed.all_reduce:
        return "gradients" if tensor.ndim == 1 else "statistics"
    if tensor.dtype == torch.int64:
        return "head"
    by_size = {4: "images", 3: "rows"}  # [B, C, H, W]; [b, V, K]
    return "statistics" if len(tensor) == 2 and tensor.ndim <= 3 else by_size[tensor.ndim]


def measure(rank: int, size: int, folder: str, arguments: Any, found: Any) -> None:
    """One process: all models and methods, in turns together and apart."""
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size
    )
    traffic: Counter[str] = Counter()
    sync._together = counted(traffic)
    for name in arguments.models.split(","):
        model, shape = made(name)
        for method in arguments.methods.split(","):
            adapters = {"auto": tapr.adapt(model, method)}
            adapters["apart"] = tapr.adapt(model, method, sync=False)
            generator = torch.Generator().manual_seed(rank)
            seconds: dict[str, list[tuple[float, float]]] = {key: [] for key in adapters}
            sent: dict[str, int] = {}
            for number in range(arguments.batches + 1):
                noise = torch.rand(arguments.images, *shape, generator=generator)
                images = (noise + noise.roll(1, 3)) / 2
                for key, adapter in adapters.items():
                    traffic.clear()
                    distributed.barrier()
                    began = time.perf_counter(), time.process_time()
                    adapter(images)
                    distributed.barrier()  # the slower one counts
                    if number:  # the first warms up
                        ended = time.perf_counter(), time.process_time()
                        seconds[key].append((ended[0] - began[0], ended[1] - began[1]))
                    if key == "auto":
                        sent = dict(traffic)
            if rank == 0:
                times = {
                    key: (median(wall for wall, _ in each), median(busy for _, busy in each))
                    for key, each in seconds.items()
                }
                found.put((name, method, times, sent))
    distributed.destroy_process_group()


def show(
    name: str, method: str, times: dict[str, tuple[float, float]], sent: dict[str, int]
) -> None:
    """A line of the table, and what it means for more devices."""
    (wall, busy), (wall_apart, busy_apart) = times["auto"], times["apart"]
    messages = sent.pop("messages")
    parts = ", ".join(f"{what} {size:,}" for what, size in sorted(sent.items()))
    print(
        f"{name:14s} {method:8s} together {wall:7.3f} s, apart {wall_apart:7.3f} s, ratio"
        f" {wall / wall_apart:5.2f}; of the processor's time {busy / busy_apart:5.2f};"
        f" {messages} messages, {sum(sent.values()):,} bytes ({parts})",
        flush=True,
    )
    gathered = sum(size for what, size in sent.items() if what != "gradients")
    for count in (8, 64):
        received = (count - 1) * gathered + 2 * sent.get("gradients", 0)
        times_by_link = ", ".join(
            f"{(received / speed + messages * latency) * 1e3:.1f} ms by {link}"
            for link, (speed, latency) in LINKS.items()
        )
        print(f"{'':23s} on paper, {count} devices: {received:,} bytes received, {times_by_link}")


def main() -> None:
    """Start two processes and show what they found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--images", type=int, default=64, help="of a batch, in each process")
    parser.add_argument("--batches", type=int, default=9)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    rows = len(arguments.models.split(",")) * len(arguments.methods.split(","))
    with tempfile.TemporaryDirectory() as folder:
        running = [
            context.Process(target=measure, args=(rank, 2, folder, arguments, found))
            for rank in range(2)
        ]
        for process in running:
            process.start()
        for _ in range(rows):
            show(*found.get())
        for process in running:
            process.join()


if __name__ == "__main__":
    main()
