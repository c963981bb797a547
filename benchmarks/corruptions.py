"""Time of the 15 corruptions at severity 5, batched and image by image, in one process.

    python benchmarks/corruptions.py [--images 10000] [--plain 100]
    python benchmarks/corruptions.py --side 224 --images 100 --plain 3

The images are the 100 real ones of tests/reference/, repeated, and enlarged where `--side` is not
32. The plain side is the same arithmetic written the straightforward way for one image and timed on
`--plain` of them. Wall time counts on an idle machine only; CPU time and the ratio of CPU times
also beside other work.
"""

import argparse
import resource
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

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


class Constants(NamedTuple):
    """The published constants of severity 5."""

    noise: float
    photons: int
    impulse: float
    disk: tuple[float, int, int, float]  # radius, reach, width and sigma of the softening
    glass: tuple[float, int]  # sigma, reach; twice
    motion: tuple[int, float]
    zoom: tuple[float, float]
    snow: tuple[float, float, float, float, int, float, float]
    frost: tuple[float, float, float]  # the image, the ice, the scale of the photograph
    fog: tuple[float, float]
    brightness: float
    contrast: float
    elastic: tuple[float, float, float]  # in pixels: ripple, its sigma, shift
    pixelate: float
    quality: int


CIFAR = Constants(
    *(0.1, 50, 0.07, (1.5, 8, 3, 0.1), (0.4, 1), (9, 2.5), (1.26, 0.01)),
    *((0.3, 0.3, 1.25, 0.65, 14, 12, 0.8), (0.75, 0.45, 0.2), (1.5, 1.75), 0.3, 0.15),
    *((3.2, 0.96, 0.96), 0.65, 40),
)
IMAGENET = Constants(
    *(0.38, 3, 0.27, (10, 10, 5, 0.5), (1.5, 4), (20, 15), (1.31, 0.03)),
    *((0.55, 0.3, 2.5, 0.85, 12, 12, 0.55), (0.6, 0.75, 1.0), (3.0, 1.4), 0.5, 0.05),
    *((0.12 * 244, 0.01 * 244, 0.02 * 244), 0.25, 7),
)


def to_bytes(values: Values) -> Pixels:
    return np.asarray(np.clip(values, 0, 1) * 255, np.uint8)


def gaussian_noise(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    return to_bytes(image / 255 + rng.normal(size=image.shape, scale=of.noise))


def shot_noise(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    return to_bytes(rng.poisson(image / 255 * of.photons) / of.photons)


def impulse_noise(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    flipped = rng.random(image.shape) < of.impulse
    return np.where(flipped, np.where(rng.random(image.shape) < 0.5, 255, 0), image).astype(
        np.uint8
    )


def defocus_blur(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    radius, reach, soft, sigma = of.disk
    line = np.arange(-reach, reach + 1) ** 2
    disk = (line[:, None] + line <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (soft, soft), sigma)
    channels = [cv2.filter2D(image[..., channel] / 255, -1, kernel) for channel in range(3)]
    return to_bytes(np.stack(channels, axis=-1))


def glass_blur(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    (sigma, reach), side = of.glass, len(image)
    pixels = to_bytes(ndimage.gaussian_filter(image / 255, (sigma, sigma, 0), mode="nearest"))
    for _ in range(2):
        for row in range(side - reach, reach, -1):
            for column in range(side - reach, reach, -1):
                right, down = rng.integers(-reach, reach, 2)
                pixels[row, column] = pixels[row + down, column + right]
    return to_bytes(ndimage.gaussian_filter(pixels / 255, (sigma, sigma, 0), mode="nearest"))


def motion(image: Pixels, radius: int, sigma: float, angle: float) -> Pixels:
    steps, side = np.arange(2 * radius + 1), len(image)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    total = np.zeros(image.shape)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        right = int(np.ceil(step * np.cos(np.deg2rad(angle)) - 0.5))
        down = int(np.ceil(step * np.sin(np.deg2rad(angle)) - 0.5))
        rows, columns = (np.clip(np.arange(side) + shift, 0, side - 1) for shift in (down, right))
        total += weight * image[rows[:, None], columns]
    return total.astype(np.uint8)


def motion_blur(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    return motion(image, *of.motion, rng.uniform(-45, 45))


def zoomed(values: Values, factor: float) -> Values:
    side = len(values)
    size = int(np.ceil(side / factor))
    top = (side - size) // 2
    middle = values[top : top + size, top : top + size]
    large = np.asarray(ndimage.zoom(middle, (factor, factor, 1), order=1))
    trim = (len(large) - side) // 2
    return large[trim : trim + side, trim : trim + side]


def zoom_blur(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    values = (image / 255).astype(np.float32)
    factors = np.arange(1, *of.zoom)
    total = sum((zoomed(values, factor) for factor in factors), start=values)
    return to_bytes(total / (len(factors) + 1))


def snow(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    mean, deviation, zoom, threshold, radius, sigma, keep = of.snow
    values = (image / 255).astype(np.float32)
    size = (len(image), len(image), 1)
    flakes = zoomed(rng.normal(size=size, loc=mean, scale=deviation), zoom)
    layer = to_bytes(np.where(flakes < threshold, 0, flakes))
    falling = motion(layer, radius, sigma, rng.uniform(-135, -45)) / 255
    grey = cv2.cvtColor(values, cv2.COLOR_RGB2GRAY)[..., None]
    whitened = keep * values + (1 - keep) * np.maximum(values, grey * 1.5 + 0.5)
    return to_bytes(whitened + falling + np.rot90(falling, 2))


def frost(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    (weight, ice, scale), side = of.frost, len(image)
    picture = photographs()[rng.integers(5)]
    scale = max(scale, (side + 1) / min(picture.shape[:2]))
    picture = cv2.resize(picture, None, fx=scale, fy=scale).astype(np.uint8)
    top, left = (rng.integers(size - side) for size in picture.shape[:2])
    return to_bytes((weight * image + ice * picture[top : top + side, left : left + side]) / 255)


def fog(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    (amount, decay), side = of.fog, len(image)
    size = 1 << (side - 1).bit_length()
    cloud = np.zeros((size, size))
    wobble, step = 100.0, size
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
        wobble, step = wobble / decay, half
    cloud = ((cloud - cloud.min()) / np.ptp(cloud))[:side, :side, None]
    values = image / 255
    return to_bytes((values + amount * cloud) * values.max() / (values.max() + amount))


def brightness(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    hsv = cv2.cvtColor((image / 255).astype(np.float32), cv2.COLOR_RGB2HSV)
    hsv[..., 2] = np.clip(hsv[..., 2] + of.brightness, 0, 1)
    return to_bytes(np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), np.float32))


def contrast(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    values = image / 255
    means = values.mean(axis=(0, 1), keepdims=True)
    return to_bytes((values - means) * of.contrast + means)


def elastic_transform(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    (alpha, sigma, shift), side = of.elastic, len(image)
    values = (image / 255).astype(np.float32)
    low, high = side // 2 - side // 3, side // 2 + side // 3
    anchors = np.array([[high, high], [high, low], [low, low]], np.float32)
    moved = anchors + rng.uniform(-shift, shift, (3, 2)).astype(np.float32)
    matrix = cv2.getAffineTransform(anchors, moved)
    stretched = cv2.warpAffine(values, matrix, (side, side), borderMode=cv2.BORDER_REFLECT_101)
    down, right = (
        alpha * ndimage.gaussian_filter(rng.uniform(-1, 1, (side, side)), sigma, truncate=3)
        for _ in range(2)
    )
    row, column, channel = np.mgrid[:side, :side, :3]
    places = [row + down[..., None], column + right[..., None], channel]
    return to_bytes(ndimage.map_coordinates(stretched, places, order=1, mode="reflect"))


def pixelate(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    fewer, side = int(len(image) * of.pixelate), len(image)
    small = Image.fromarray(image).resize((fewer, fewer), Image.Resampling.BOX)
    return np.asarray(small.resize((side, side), Image.Resampling.BOX))


def jpeg_compression(image: Pixels, rng: Rng, of: Constants) -> Pixels:
    file = BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=of.quality)
    return np.asarray(Image.open(file))


PLAIN: dict[str, Callable[[Pixels, Rng, Constants], Pixels]] = {
    name: globals()[name] for name in STANDARD
}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def pictures(side: int) -> Pixels:
    """The 100 real images, of `side` pixels."""
    mosaic = np.asarray(Image.open(MOSAIC)).reshape(10, 32, 10, 32, 3)
    images = mosaic.swapaxes(1, 2).reshape(100, 32, 32, 3)
    if side == 32:
        return images
    large = [cv2.resize(i, (side, side), interpolation=cv2.INTER_CUBIC) for i in images]
    return np.stack(large).astype(np.uint8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--plain", type=int, default=100)
    parser.add_argument("--side", type=int, default=32)
    options = parser.parse_args()
    images = pictures(options.side)[np.arange(options.images) % 100]
    few, constants = images[: options.plain], CIFAR if options.side <= 32 else IMAGENET

    batched = {}
    for name in STANDARD:
        corrupt(images[:1], name, 5)  # photographs and matrices are made once
        batched[name] = timed(lambda name=name: corrupt(images, name, 5))  # type: ignore[misc]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    size = f"{options.side} x {options.side}"
    print(f"severity 5, {len(images)} images of {size}; the plain loop timed on {len(few)}")
    print("| corruption | wall s | CPU s | CPU us/image | plain, us/image | ratio |")
    print("|---|---|---|---|---|---|")
    for name, (wall, cpu) in batched.items():
        rng, plain = np.random.default_rng(0), PLAIN[name]
        alone = timed(lambda rng=rng, plain=plain: [plain(i, rng, constants) for i in few])[1]  # type: ignore[misc]
        ours, theirs = cpu / len(images) * 1e6, alone / len(few) * 1e6
        print(
            f"| {name} | {wall:.2f} | {cpu:.2f} | {ours:.0f} | {theirs:.0f} | {theirs / ours:.1f} |"
        )
    wall, cpu = (sum(column) for column in zip(*batched.values(), strict=True))
    print(f"| all 15 | {wall:.1f} | {cpu:.1f} | | | |")
    print(f"peak memory {peak:.0f} MiB")


if __name__ == "__main__":
    main()
