"""Derive from the CIFAR-10-C reference what the tests hold without it.

    python tests/reference/derive_cifar10c_figures.py FOLDER

FOLDER has severity3.npz and severity5.npz: `clean` and an array per corruption, for the first 100
test images. Written beside this file: the clean images as a mosaic, and as JSON a sample of the
corrupted values, and statistics of those random changes of which 100 images are enough.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

HERE = Path(__file__).parent
SAMPLE = slice(7, None, 211)  # of all values: 1,456 from all over the images
BANDS = (0.5, 2, 4, 6, 8, 10, 12, 14, 16)  # cycles per image
SEVERITIES = (3, 5)
STEADY = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur")

Images = NDArray[np.uint8]
Figures = dict[str, NDArray[np.float64]]


def measure(clean: Images, corrupted: Images) -> Figures:
    """Mean and deviation of the change per channel, and its power per radial band."""
    change = corrupted.astype(np.float64) - clean
    frequency = np.fft.fftfreq(32) * 32
    band = np.digitize(np.hypot(frequency[:, None], frequency), BANDS)
    power = (np.abs(np.fft.fft2(change, axes=(1, 2))) ** 2).mean(axis=(0, 3))
    return {
        "mean": change.mean(axis=(0, 1, 2)),
        "deviation": change.std(axis=(0, 1, 2)),
        "power": np.array([power[band == number].mean() for number in range(1, len(BANDS))]),
    }


def main(folder: Path) -> None:
    """Read the reference, write the mosaic and the figures."""
    reference = {level: np.load(folder / f"severity{level}.npz") for level in SEVERITIES}
    clean = reference[3]["clean"]
    mosaic = clean.reshape(10, 10, 32, 32, 3).swapaxes(1, 2).reshape(320, 320, 3)
    Image.fromarray(mosaic).save(HERE / "cifar10_first_100.webp", lossless=True, quality=100)
    figures: dict[str, Any] = {"samples": {}, "statistics": {}}
    for level, arrays in reference.items():
        figures["samples"][str(level)] = {
            name: arrays[name].ravel()[SAMPLE].tobytes().hex()
            for name in arrays.files
            if name not in {"clean", "labels"}
        }
        figures["statistics"][str(level)] = {
            name: {
                key: [float(f"{value:.5g}") for value in values]
                for key, values in measure(clean, arrays[name]).items()
            }
            for name in STEADY
        }
    (HERE / "cifar10c_figures.json").write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
