"""The 19 corruptions of CIFAR-10-C and ImageNet-C (Hendrycks & Dietterich 2019), batched, seeded.

`corrupt(images, name, severity, seed=0)` is all one needs; `STANDARD` and `EXTRA` list the names.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from tapr.corruptions import blur, digital, noise, weather
from tapr.corruptions.chunks import in_chunks
from tapr.corruptions.common import Bytes, Draws, Level
from tapr.errors import InputError
from tapr.registry import Registry
from tapr.rng import derive

__all__ = ["CORRUPTIONS", "EXTRA", "STANDARD", "corrupt", "names_of"]

STANDARD = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")

CORRUPTIONS: Registry[Callable[[Bytes, Level, Draws], Bytes]] = Registry(
    "corruption",
    {
        "gaussian_noise": noise.gaussian_noise,
        "shot_noise": noise.shot_noise,
        "impulse_noise": noise.impulse_noise,
        "defocus_blur": blur.defocus_blur,
        "glass_blur": blur.glass_blur,
        "motion_blur": blur.motion_blur,
        "zoom_blur": blur.zoom_blur,
        "snow": weather.snow,
        "frost": weather.frost,
        "fog": weather.fog,
        "brightness": weather.brightness,
        "contrast": digital.contrast,
        "elastic_transform": digital.elastic_transform,
        "pixelate": digital.pixelate,
        "jpeg_compression": digital.jpeg_compression,
        "speckle_noise": noise.speckle_noise,
        "gaussian_blur": blur.gaussian_blur,
        "spatter": weather.spatter,
        "saturate": digital.saturate,
    },
)

LARGEST_SMALL = 32  # the shorter side up to which CIFAR-10-C's constants are used
SMALLEST = 8  # below it a pixelated image would have no pixels


def corrupt(
    images: NDArray[np.uint8],
    name: str,
    severity: int,
    *,
    seed: int = 0,
    indices: NDArray[np.integer] | None = None,
) -> NDArray[np.uint8]:
    """Corrupt `images` [N, H, W, 3]; `indices` are their numbers in their data set (0 .. N-1).

    What happens to an image depends only on the image, `name`, `severity`, `seed` and its number:
    any subset, in any order, gets the same pictures.

    >>> corrupt(np.zeros((2, 32, 32, 3), np.uint8), "gaussian_noise", 5).shape
    (2, 32, 32, 3)
    """
    function = CORRUPTIONS[name]
    _check(images, severity)
    numbers = _numbers(indices, len(images))
    level = Level(severity, large=min(images.shape[1:3]) > LARGEST_SMALL)
    key = derive(seed, "corruption", name, severity)

    def run(part: slice) -> Bytes:
        return function(images[part], level, Draws(key, numbers[part]))

    return in_chunks(run, images.shape)


def names_of(chosen: Iterable[str]) -> list[str]:
    """Expand `standard` (15) and `all` (19) among names of corruptions; each name comes once.

    >>> names_of(["fog", "frost", "fog"])
    ['fog', 'frost']
    """
    groups = {"standard": STANDARD, "all": STANDARD + EXTRA}
    names = [name for choice in chosen for name in groups.get(choice, (choice,))]
    for name in names:
        CORRUPTIONS[name]
    return list(dict.fromkeys(names))


def _check(images: NDArray[np.uint8], severity: int) -> None:
    whole = isinstance(severity, int | np.integer) and not isinstance(severity, bool)
    if not whole or severity not in range(1, 6):
        raise InputError(f"expected a severity from 1 to 5, got {severity!r}")
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        found = getattr(images, "dtype", type(images).__name__)
        raise InputError(f"expected images as a uint8 array, got {found}")
    if images.ndim != 4 or images.shape[3] != 3:
        raise InputError(
            f"expected images of shape [N, H, W, 3], got {list(images.shape)}; "
            "repeat a grey image's channel three times"
        )
    if min(images.shape[1:3]) < SMALLEST:
        height, width = images.shape[1:3]
        raise InputError(
            f"expected images of at least {SMALLEST} x {SMALLEST} pixels, got {height} x {width}"
        )


def _numbers(indices: NDArray[np.integer] | None, count: int) -> NDArray[np.int64]:
    if indices is None:
        return np.arange(count)
    numbers = np.asarray(indices)
    if numbers.shape != (count,) or not np.issubdtype(numbers.dtype, np.integer):
        raise InputError(
            f"expected {count} whole numbers as indices, got {numbers.dtype} {list(numbers.shape)}"
        )
    if count and numbers.min() < 0:
        raise InputError(f"expected indices of at least 0, got {numbers.min()}")
    return numbers.astype(np.int64)
