"""Print how near our corruptions are to the whole CIFAR-10-C reference, as the docs' table.

    python -m tests.reference.compare_cifar10c FOLDER

FOLDER is the one of derive_cifar10c_figures.py. Chance is compared over 20 seeds of the same 100
images; "spread" is what the figure of 100 images varies by from seed to seed, so that a difference
of a few spreads is the luck of the reference's one draw.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tests.reference.derive_cifar10c_figures import SEVERITIES, measure
from tests.reference.original_draws import REPLAYS, replayed

from tapr.corruptions import CORRUPTIONS, corrupt

SEEDS = 20
CERTAIN = (
    "brightness",
    "contrast",
    "defocus_blur",
    "gaussian_blur",
    "jpeg_compression",
    "pixelate",
    "saturate",
    "zoom_blur",
)


def main(folder: Path) -> None:
    """Print three tables."""
    reference = {severity: np.load(folder / f"severity{severity}.npz") for severity in SEVERITIES}
    for title, names in (("without chance", CERTAIN), ("with the same draws", list(REPLAYS))):
        print(f"| {title} | severity | equal | within 1 level | largest gap |")
        print("|---|---|---|---|---|")
        for name in names:
            for severity, arrays in reference.items():
                clean = arrays["clean"]
                if name in CERTAIN:
                    ours = corrupt(clean, name, severity)
                else:
                    ours = replayed(clean, name, severity, seed=0)
                gap = np.abs(ours.astype(int) - arrays[name])
                equal, near = (gap == 0).mean(), (gap <= 1).mean()
                print(f"| {name} | {severity} | {equal:.2%} | {near:.3%} | {gap.max()} |")
        print()
    print("| with our draws | severity | mean, levels | deviation | power per band | its spread |")
    print("|---|---|---|---|---|---|")
    for name in sorted(set(CORRUPTIONS) - set(CERTAIN)):
        for severity, arrays in reference.items():
            print(f"| {name} | {severity} | {' | '.join(distances(arrays, name, severity))} |")


def distances(arrays: Mapping[str, NDArray[np.uint8]], name: str, severity: int) -> list[str]:
    """How far our figures are from the reference's, at most over channels or bands."""
    clean = arrays["clean"]
    wanted = measure(clean, arrays[name])
    runs = [measure(clean, corrupt(clean, name, severity, seed=seed)) for seed in range(SEEDS)]
    mean, deviation, power = (
        np.array([run[key] for run in runs]) for key in ("mean", "deviation", "power")
    )
    shift = np.abs(mean.mean(axis=0) - wanted["mean"]).max()
    ratio = np.abs(deviation.mean(axis=0) / wanted["deviation"] - 1).max()
    bands = np.abs(power.mean(axis=0) / wanted["power"] - 1)
    spread = (power.std(axis=0, ddof=1) / power.mean(axis=0))[bands.argmax()]
    return [
        f"{shift:.2f} ± {mean.std(axis=0, ddof=1).max():.2f}",
        f"{ratio:.1%}",
        f"{bands.max():.1%}",
        f"{spread:.1%}",
    ]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
