"""Print how near our corruptions are to the whole CIFAR-10-C reference, as the docs' table.

    python -m tests.reference.compare_cifar10c FOLDER

FOLDER is the one of derive_cifar10c_figures.py. Chance is compared over 20 seeds of the same 100
images; "spread" is what the figure of 100 images varies by from seed to seed, so that a difference
of a few spreads is the luck of the reference's one draw.
"""

import sys
from pathlib import Path

import numpy as np
from tests.reference.derive_cifar10c_figures import SEVERITIES, measure

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
    """Print both tables."""
    reference = {severity: np.load(folder / f"severity{severity}.npz") for severity in SEVERITIES}
    print("| without chance | severity | equal | within 1 level |\n|---|---|---|---|")
    for name in CERTAIN:
        for severity, arrays in reference.items():
            ours = corrupt(arrays["clean"], name, severity)
            gap = np.abs(ours.astype(int) - arrays[name])
            print(f"| {name} | {severity} | {(gap == 0).mean():.2%} | {(gap <= 1).mean():.3%} |")
    print("\n| with chance | severity | mean, levels | deviation | power per band | its spread |")
    print("|---|---|---|---|---|---|")
    for name in sorted(set(CORRUPTIONS) - set(CERTAIN)):
        for severity, arrays in reference.items():
            wanted = measure(arrays["clean"], arrays[name])
            runs = [
                measure(arrays["clean"], corrupt(arrays["clean"], name, severity, seed=seed))
                for seed in range(SEEDS)
            ]
            mean, deviation, power = (
                np.array([run[key] for run in runs]) for key in ("mean", "deviation", "power")
            )
            shift = np.abs(mean.mean(axis=0) - wanted["mean"]).max()
            ratio = np.abs(deviation.mean(axis=0) / wanted["deviation"] - 1).max()
            bands = np.abs(power.mean(axis=0) / wanted["power"] - 1)
            spread = power.std(axis=0, ddof=1) / power.mean(axis=0)
            print(
                f"| {name} | {severity} | {shift:.2f} ± {mean.std(axis=0, ddof=1).max():.2f} "
                f"| {ratio:.1%} | {bands.max():.1%} | {spread[bands.argmax()]:.1%} |"
            )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
