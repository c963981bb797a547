"""Derive from the CIFAR-10-C reference what the tests hold without it.

    python tests/reference/derive_cifar10c_figures.py FOLDER

FOLDER has severity3.npz and severity5.npz: `clean` and an array per corruption, for the first 100
test images. Written beside this file: the clean images as a mosaic, and figures as JSON. For
three random corruptions the reference's own draws are found again, so that the rest can be exact.
"""

import json
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.optimize import least_squares

from tapr.corruptions.common import to_unit
from tapr.corruptions.motion import motion
from tapr.corruptions.photographs import photographs
from tapr.corruptions.warp import affine

HERE = Path(__file__).parent
SAMPLE = slice(7, None, 151)  # of all values: 2,035 from all over the images
BANDS = (0.5, 2, 4, 6, 8, 10, 12, 14, 16)  # cycles per image
SEVERITIES = (3, 5)
STATISTICS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "glass_blur",
    "snow",
    "fog",
    "spatter",
    "elastic_transform",
)

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


def find_angles(clean: Images, blurred: Images, radius: int, sigma: float) -> list[float]:
    """The angle of each motion blur, in degrees, on a grid of an eighth."""
    angles = np.linspace(-45, 45, 721, dtype=np.float32)
    found = []
    for image, target in zip(clean, blurred, strict=True):
        tries = motion(np.repeat(image[None], len(angles), 0), radius, sigma, angles)
        error = np.abs(tries.astype(np.int16) - target).mean(axis=(1, 2, 3))
        found.append(float(angles[error.argmin()]))
    return found


def find_crops(clean: Images, frosted: Images, image: float, ice: float) -> list[list[int]]:
    """Which photograph lies over each image, and the crop's top and left."""
    pictures = [cv2.resize(picture, None, fx=0.2, fy=0.2) for picture in photographs()]
    found = []
    for under, over in zip(clean, frosted, strict=True):
        piece = ((over + 0.5 - image * under) / ice).astype(np.float32)
        seen = (over < 255).astype(np.float32)
        misses = [
            cv2.matchTemplate(picture.astype(np.float32), piece, cv2.TM_SQDIFF, mask=seen)
            for picture in pictures
        ]
        which = int(np.argmin([miss.min() for miss in misses]))
        top, left = np.unravel_index(misses[which].argmin(), misses[which].shape)
        found.append([which, int(top), int(left)])
    return found


def find_shifts(clean: Images, stretched: Images, reach: float) -> list[list[float]]:
    """How far each of the three anchors moved, in units of the farthest that they may."""
    starts = [np.zeros(6), *np.random.default_rng(0).uniform(-reach, reach, (3, 6))]
    found = []
    for image, target in zip(to_unit(clean), to_unit(stretched), strict=True):
        # The ripple that follows the stretch is fine: blurring hides most of it.
        soft, soft_target = (cv2.GaussianBlur(each, (0, 0), 1.0) for each in (image, target))

        def miss(shifts: Any, soft: Any = soft, wanted: Any = soft_target) -> Any:
            moved = affine(soft[None], shifts.reshape(1, 3, 2).astype(np.float32))
            return (moved[0] - wanted).ravel()

        tries = [least_squares(miss, start, diff_step=[0.05] * 6) for start in starts]
        best = min(tries, key=lambda each: float(each.cost)).x
        found.append([round(float(value), 3) for value in np.clip(best / reach, -1, 1)])
    return found


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
            if name not in {"clean", "labels", *STATISTICS}
        }
        figures["statistics"][str(level)] = {
            name: {
                key: [float(f"{value:.5g}") for value in values]
                for key, values in measure(clean, arrays[name]).items()
            }
            for name in STATISTICS
        }
    figures["angles"] = {
        "3": find_angles(clean, reference[3]["motion_blur"], 6, 2.0),
        "5": find_angles(clean, reference[5]["motion_blur"], 9, 2.5),
    }
    figures["crops"] = find_crops(clean, reference[3]["frost"], 0.9, 0.4)
    figures["shifts"] = find_shifts(clean, reference[3]["elastic_transform"], 1.92)
    (HERE / "cifar10c_figures.json").write_text(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
