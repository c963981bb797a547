"""Peak memory of `tapr adapt` and `tapr bench` on folders of 100 and of 10,000 photographs.

    python -m benchmarks.folders

Each run is a process of its own; the photographs are links to a few made ones of 256 x 256 pixels.
A tiny model keeps the forwards short: what is measured is reading, not predicting. Batches have 16
images, so that 100 photographs are enough of them to fill what is read ahead. Where glibc's heap
has room differs from run to run, and the peak with it, by some 25 MiB: the median of `--rounds` is
printed, and all of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 4, 16, 16), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4, 10))
"""
SPEC = """
data = "folder:{folder}"
corruptions = []
order = "shuffled"
batch_size = 16
size = "224"
model = "folder_model:build"
methods = ["norm"]
"""


def photographs(folder: Path, count: int) -> Path:
    """A folder of ten classes with so many photographs."""
    random = np.random.default_rng(0)
    originals = []
    for number in range(20):
        pixels = random.integers(0, 256, (32, 32, 3), np.uint8)
        originals.append(folder.parent / f"original{number}.jpg")
        Image.fromarray(pixels).resize((256, 256), Image.Resampling.BICUBIC).save(originals[-1])
    for number in range(count):
        place = folder / str(number % 10) / f"{number:05d}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(originals[number % len(originals)])
    return folder


def peak(place: Path, *words: str) -> float:
    """The largest resident memory of a command, in MiB."""
    process = subprocess.Popen([sys.executable, "-m", "tapr.cli", *words], cwd=place)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"tapr {' '.join(words)} ended with status {status}"
    return usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    for count in chosen.counts:
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            (place / "folder_model.py").write_text(MODEL)
            folder = photographs(place / "photographs", count)
            (place / "spec.toml").write_text(SPEC.format(folder=folder))
            options = ["--model", "folder_model:build", "--size", "224", "--shuffle", "--quiet"]
            options += ["--method", "norm", "--batch-size", "16"]
            peaks: dict[str, list[float]] = {"adapt": [], "bench": []}
            for number in range(chosen.rounds):
                out = f"out{number}"
                peaks["adapt"].append(
                    peak(place, "adapt", str(folder), *options, "-o", f"{out}.csv")
                )
                peaks["bench"].append(peak(place, "bench", "spec.toml", "--out", out, "--quiet"))
        for command, found in peaks.items():
            mib = [round(each) for each in sorted(found)]
            print(
                json.dumps(
                    {"photographs": count, "command": command, "mib": median(mib), "rounds": mib}
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
