"""Time of the 15 corruptions at severity 5, batched and image by image, in one process.

    python benchmarks/corruptions.py [--images 10000] [--plain 100]

The images are the 100 real ones of tests/reference/, repeated. The plain side is the same
arithmetic written the straightforward way for one image and timed on `--plain` of them. Wall time
counts on an idle machine only; CPU time and the ratio of CPU times also beside other work.
"""

import argparse
import resource
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from tapr.corruptions import STANDARD, corrupt
from tapr.corruptions.photographs import photographs

Pixels = NDArray[np.uint8]
Values = NDArray[np.floating]
Rng = np.random.Generator

MOSAIC = Path(__file__).parent.parent / "tests" / "reference" / "cifar10_first_100.webp"


def to_bytes(values: Values) -> Pixels:
    return np.asarray(np.clip(values, 0, 1) * 255, np.uint8)


def gaussian_noise(image: Pixels, rng: Rng) -> Pixels:
    return to_bytes(image / 255 + rng.normal(size=image.shape, scale=0.1))


def shot_noise(image: Pixels, rng: Rng) -> Pixels:
    return to_bytes(rng.poisson(image / 255 * 50) / 50)


def impulse_noise(image: Pixels, rng: Rng) -> Pixels:
    flipped = rng.random(image.shape) < 0.07
    return np.where(flipped, np.where(rng.random(image.shape) < 0.5, 255, 0), image).astype(
        np.uint8
    )


def defocus_blur(image: Pixels, rng: Rng) -> Pixels:
    line = np.arange(-8, 9) ** 2
    disk = (line[:, None] + line <= 1.5**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (3, 3), 0.1)
    channels = [cv2.filter2D(image[..., channel] / 255, -1, kernel) for channel in range(3)]
    return to_bytes(np.stack(channels, axis=-1))


def glass_blur(image: Pixels, rng: Rng) -> Pixels:
    pixels = to_bytes(ndimage.gaussian_filter(image / 255, (0.4, 0.4, 0), mode="nearest"))
    for _ in range(2):
        for row in range(31, 1, -1):
            for column in range(31, 1, -1):
                right, down = rng.integers(-1, 1, 2)
                pixels[row, column] = pixels[row + down, column + right]
    return to_bytes(ndimage.gaussian_filter(pixels / 255, (0.4, 0.4, 0), mode="nearest"))


def motion(image: Pixels, radius: int, sigma: float, angle: float) -> Pixels:
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    total = np.zeros(image.shape)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        right = int(np.ceil(step * np.cos(np.deg2rad(angle)) - 0.5))
        down = int(np.ceil(step * np.sin(np.deg2rad(angle)) - 0.5))
        rows, columns = (np.clip(np.arange(32) + shift, 0, 31) for shift in (down, right))
        total += weight * image[rows[:, None], columns]
    return total.astype(np.uint8)


def motion_blur(image: Pixels, rng: Rng) -> Pixels:
    return motion(image, 9, 2.5, rng.uniform(-45, 45))


def zoomed(values: Values, factor: float) -> Values:
    size = int(np.ceil(32 / factor))
    top = (32 - size) // 2
    middle = values[top : top + size, top : top + size]
    large = np.asarray(ndimage.zoom(middle, (factor, factor, 1), order=1))
    trim = (len(large) - 32) // 2
    return large[trim : trim + 32, trim : trim + 32]


def zoom_blur(image: Pixels, rng: Rng) -> Pixels:
    values = (image / 255).astype(np.float32)
    factors = np.arange(1, 1.26, 0.01)
    total = sum((zoomed(values, factor) for factor in factors), start=values)
    return to_bytes(total / (len(factors) + 1))


def snow(image: Pixels, rng: Rng) -> Pixels:
    values = (image / 255).astype(np.float32)
    flakes = zoomed(rng.normal(size=(32, 32, 1), loc=0.3, scale=0.3), 1.25)
    layer = to_bytes(np.where(flakes < 0.65, 0, flakes))
    falling = motion(layer, 14, 12, rng.uniform(-135, -45)) / 255
    grey = cv2.cvtColor(values, cv2.COLOR_RGB2GRAY)[..., None]
    whitened = 0.8 * values + 0.2 * np.maximum(values, grey * 1.5 + 0.5)
    return to_bytes(whitened + falling + np.rot90(falling, 2))


def frost(image: Pixels, rng: Rng) -> Pixels:
    picture = cv2.resize(photographs()[rng.integers(5)], None, fx=0.2, fy=0.2)
    top, left = (rng.integers(size - 32) for size in picture.shape[:2])
    return to_bytes((0.75 * image + 0.45 * picture[top : top + 32, left : left + 32]) / 255)


def fog(image: Pixels, rng: Rng) -> Pixels:
    cloud = np.zeros((32, 32))
    wobble, step = 100.0, 32
    while step >= 2:
        half = step // 2
        corners = cloud[::step, ::step]
        pairs = corners + np.roll(corners, -1, 0)
        middles = (pairs + np.roll(pairs, -1, 1)) / 4
        middles = middles + wobble * rng.uniform(-wobble, wobble, middles.shape)
        cloud[half::step, half::step] = middles
        above = middles + np.roll(middles, 1, 0) + corners + np.roll(corners, -1, 1)
        beside = middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 0)
        cloud[::step, half::step] = above / 4 + wobble * rng.uniform(-wobble, wobble, above.shape)
        cloud[half::step, ::step] = beside / 4 + wobble * rng.uniform(-wobble, wobble, above.shape)
        wobble, step = wobble / 1.75, half
    cloud = (cloud - cloud.min()) / np.ptp(cloud)
    values = image / 255
    return to_bytes((values + 1.5 * cloud[..., None]) * values.max() / (values.max() + 1.5))


def brightness(image: Pixels, rng: Rng) -> Pixels:
    hsv = cv2.cvtColor((image / 255).astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 2] = np.clip(hsv[..., 2] + 0.3, 0, 1)
    return to_bytes(np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), np.float32))


def contrast(image: Pixels, rng: Rng) -> Pixels:
    values = image / 255
    means = values.mean(axis=(0, 1), keepdims=True)
    return to_bytes((values - means) * 0.15 + means)


def elastic_transform(image: Pixels, rng: Rng) -> Pixels:
    values = (image / 255).astype(np.float32)
    anchors = np.array([[26, 26], [26, 6], [6, 6]], np.float32)
    moved = anchors + rng.uniform(-0.96, 0.96, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(anchors, moved)
    stretched = cv2.warpAffine(values, matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101)
    down, right = (
        3.2 * ndimage.gaussian_filter(rng.uniform(-1, 1, (32, 32)), 0.96, truncate=3)
        for _ in range(2)
    )
    row, column, channel = np.mgrid[:32, :32, :3]
    places = [row + down[..., None], column + right[..., None], channel]
    return to_bytes(ndimage.map_coordinates(stretched, places, order=1, mode="reflect"))


def pixelate(image: Pixels, rng: Rng) -> Pixels:
    small = Image.fromarray(image).resize((20, 20), Image.Resampling.BOX)
    return np.asarray(small.resize((32, 32), Image.Resampling.BOX))


def jpeg_compression(image: Pixels, rng: Rng) -> Pixels:
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=40)
    return np.asarray(Image.open(file))


PLAIN: dict[str, Callable[[Pixels, Rng], Pixels]] = {name: globals()[name] for name in STANDARD}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--plain", type=int, default=100)
    options = parser.parse_args()
    mosaic = np.asarray(Image.open(MOSAIC)).reshape(10, 32, 10, 32, 3)
    pictures = mosaic.swapaxes(1, 2).reshape(100, 32, 32, 3)
    images = pictures[np.arange(options.images) % 100]
    few = images[: options.plain]

    batched = {}
    for name in STANDARD:
        corrupt(images[:1], name, 5)  # photographs and matrices are made once
        batched[name] = timed(lambda name=name: corrupt(images, name, 5))  # type: ignore[misc]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    print(f"severity 5, {len(images)} images of 32 x 32; the plain loop timed on {len(few)}")
    print("| corruption | wall s | CPU s | CPU us/image | plain, us/image | ratio |")
    print("|---|---|---|---|---|---|")
    for name, (wall, cpu) in batched.items():
        rng, plain = np.random.default_rng(0), PLAIN[name]
        _, alone = timed(lambda rng=rng, plain=plain: [plain(image, rng) for image in few])  # type: ignore[misc]
        ours, theirs = cpu / len(images) * 1e6, alone / len(few) * 1e6
        print(
            f"| {name} | {wall:.2f} | {cpu:.2f} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} |"
        )
    wall, cpu = (sum(column) for column in zip(*batched.values(), strict=True))
    print(f"| all 15 | {wall:.1f} | {cpu:.1f} | | | |")
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
