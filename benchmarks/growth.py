"""How the cost of a batch grows with its size, the views, the steps and the size of the images.

    python -m benchmarks.growth [--json results/growth.json] [--plot docs/images/growth.svg]

PEST on the shipped model, one thread, in CPU-seconds: a busy machine disturbs them little. The line
is `adapter.cost(...)`'s prediction of the arithmetic, scaled to the measurement it starts from.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
from benchmarks.views import photographs

import tapr
from tapr.models import load

START = {"batch": 50, "views": 2, "steps": 2, "side": 32}
ALONG = {
    "batch": (1, 5, 20, 50, 100, 200),
    "views": (1, 2, 4, 8),
    "steps": (1, 2, 5, 10),
    "side": (16, 32, 64, 96),
}
TITLES = {
    "batch": "images in a batch",
    "views": "views of an image",
    "steps": "steps",
    "side": "side of an image, pixels",
}


def point(batch: int, views: int, steps: int, side: int, rounds: int) -> dict[str, float]:
    adapter = tapr.adapt(load("cifar10-small"), views=views, steps=steps)
    images = photographs(batch, side, torch.Generator().manual_seed(0))
    adapter(images)
    taken = []
    for _ in range(rounds):
        started = time.process_time()
        adapter(images)
        taken.append(time.process_time() - started)
    return {"cpu_seconds": median(taken), "gflop": adapter.cost(images.shape).flops / 1e9}


def plot(results: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "tapr"
    figure, axes = plt.subplots(1, 4, figsize=(12, 2.9), constrained_layout=True)
    for axis, (name, points) in zip(axes, results.items(), strict=True):
        places = [int(place) for place in points]
        seconds = [own["cpu_seconds"] for own in points.values()]
        start = points[str(START[name])]
        scale = start["cpu_seconds"] / start["gflop"]
        predicted = [scale * own["gflop"] for own in points.values()]
        axis.plot(places, predicted, color="0.6", label="predicted by FLOPs")
        axis.plot(places, seconds, "o", color="C0", label="measured")
        axis.set_xlabel(TITLES[name])
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("CPU-seconds per batch")
    axes[0].legend(frameon=False, fontsize="small")
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tapr.keep_memory()
    results: dict[str, Any] = {}
    for name, places in ALONG.items():
        results[name] = {}
        for place in places:
            own = point(**{**START, name: place}, rounds=arguments.rounds)
            results[name][str(place)] = own
            seconds = f"{own['cpu_seconds']:7.3f} CPU-s {own['gflop']:8.2f} GFLOP"
            print(f"{name:6} {place:4d} {seconds}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.plot:
        plot(results, arguments.plot)


if __name__ == "__main__":
    main()
