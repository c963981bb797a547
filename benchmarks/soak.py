"""Does an adapter that runs for long grow? Memory, open files and time per batch along a stream.

    python -m benchmarks.soak --batches 100000 [--json results/soak.json] [--plot FILE.svg]

A tiny net, batches of 8 new images, one thread. Memory is the process's own (RSS), as Linux tells
it; time is in CPU-seconds. It fails if memory at the end is more than 2 % above that at the
thousandth batch, or if more files are open.
"""

import argparse
import gc
import json
import os
import time
from pathlib import Path
from typing import Any

import torch

import tapr
from tapr.testing import small_model

METHODS: dict[str, dict[str, Any]] = {"tent": {}, "pest": {"steps": 1}}
BATCH, SIDE = 8, 16
POINTS = 100  # along the stream
WARM = 1000  # batches, after which memory is to stay
GROWTH = 0.02


def memory() -> float:
    """MiB of this process that lie in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def soak(method: str, batches: int) -> list[dict[str, float]]:
    adapter = tapr.adapt(small_model(), method, **METHODS[method])
    generator = torch.Generator().manual_seed(0)
    every = max(1, min(WARM, batches // POINTS))
    points, done = [], 0
    while done < batches:
        started = time.process_time()
        for _ in range(every):
            adapter(torch.rand(BATCH, 3, SIDE, SIDE, generator=generator))
        spent, done = (time.process_time() - started) / every, done + every
        gc.collect()
        points.append(
            {"batch": done, "mib": memory(), "files": files(), "milliseconds": 1000 * spent}
        )
        if done % (10 * every) == 0:
            print(f"{method} {points[-1]}", flush=True)
    assert all(torch.isfinite(t).all() for t in adapter.live().values() if t.is_floating_point())
    return points


def verdict(points: list[dict[str, float]]) -> dict[str, float | bool]:
    """The first point that is warm against the last one."""
    first = next((point for point in points if point["batch"] >= WARM), points[0])
    last = points[-1]
    growth = last["mib"] / first["mib"] - 1
    return {
        "growth": round(growth, 5),
        "more_files": last["files"] - first["files"],
        "slower": round(last["milliseconds"] / first["milliseconds"] - 1, 3),
        "holds": growth <= GROWTH and last["files"] <= first["files"],
    }


def plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "tapr"
    titles = {
        "mib": "memory (RSS), MiB",
        "files": "open files",
        "milliseconds": "CPU-milliseconds per batch",
    }
    figure, axes = plt.subplots(1, 3, figsize=(12, 2.9), constrained_layout=True)
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for method, own in results["methods"].items():
            batches = [point["batch"] for point in own["points"]]
            axis.plot(batches, [point[key] for point in own["points"]], label=method)
        axis.set_title(title, fontsize="medium")
        axis.set_xlabel("batches of 8 images")
        axis.set_ylim(bottom=0)
    axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    results: dict[str, Any] = {
        "batches": arguments.batches,
        "images_in_a_batch": BATCH,
        "torch": torch.__version__,
        "methods": {},
    }
    for method, options in METHODS.items():
        points = soak(method, arguments.batches)
        found = verdict(points)
        print(f"{method}: {found}", flush=True)
        results["methods"][method] = {"options": options, **found, "points": points}
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.plot:
        plot(results, arguments.plot)
    if not all(own["holds"] for own in results["methods"].values()):
        raise SystemExit("expected memory and open files to stay, and they grew")


if __name__ == "__main__":
    main()
