"""Every op against PIL, over generated images, sizes and parameters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from PIL import Image, ImageEnhance, ImageOps

from tapr.augment import ops

Levels = NDArray[np.uint8]
PilOp = Callable[[Image.Image, Any], Image.Image]
RESAMPLE = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}


def affine(place: int, resample: str) -> PilOp:
    def run(image: Image.Image, value: float) -> Image.Image:
        matrix = [1.0, 0, 0, 0, 1, 0]
        matrix[place] = value
        return image.transform(image.size, Image.Transform.AFFINE, matrix, RESAMPLE[resample])

    return run


def rotate(resample: str) -> PilOp:
    return lambda image, degrees: image.rotate(degrees, RESAMPLE[resample])


def solarize_add(image: Image.Image, addition: float) -> Image.Image:
    added = np.clip(np.asarray(image).astype(int) + addition, 0, 255).astype(np.uint8)
    return ImageOps.solarize(Image.fromarray(added), 128)


def enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> PilOp:
    return lambda image, factor: kind(image).enhance(factor)


class Case(NamedTuple):
    name: str
    pil: PilOp
    values: st.SearchStrategy[float]
    worst: int = 0  # levels of difference allowed anywhere
    equal: float = 1.0  # part of the pixels that must be equal
    options: dict[str, str] = {}


def number(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=32)


ANGLE, SLOPE, SHIFT, FACTOR = number(-400, 400), number(-2, 2), number(-40, 40), number(-1, 4)
MOVES: list[tuple[str, Callable[[str], PilOp], st.SearchStrategy[float]]] = [
    ("rotate", rotate, st.one_of(ANGLE, st.integers(-12, 12).map(lambda n: 30.0 * n))),
    ("shear_x", lambda resample: affine(1, resample), SLOPE),
    ("shear_y", lambda resample: affine(3, resample), SLOPE),
    ("translate_x", lambda resample: affine(2, resample), SHIFT),
    ("translate_y", lambda resample: affine(5, resample), SHIFT),
]
NONE = st.just(0.0)
CASES = [
    Case("identity", lambda image, _: image, NONE),
    Case("autocontrast", lambda image, _: ImageOps.autocontrast(image), NONE),
    Case("equalize", lambda image, _: ImageOps.equalize(image), NONE),
    Case("invert", lambda image, _: ImageOps.invert(image), NONE),
    Case("solarize", lambda image, t: ImageOps.solarize(image, t), number(0, 256)),
    Case("solarize_add", solarize_add, number(0, 110)),
    Case("posterize", lambda image, b: ImageOps.posterize(image, int(b)), number(1, 8)),
    Case("color", enhance(ImageEnhance.Color), FACTOR, 1, 0.99),
    Case("contrast", enhance(ImageEnhance.Contrast), FACTOR, 1, 0.99),
    Case("brightness", enhance(ImageEnhance.Brightness), FACTOR, 1, 0.99),
    Case("sharpness", enhance(ImageEnhance.Sharpness), FACTOR, 1, 0.99),
    *(Case(name, pil("nearest"), values) for name, pil, values in MOVES),
    *(
        Case(name, pil("bilinear"), values, 1, 0.0, {"resample": "bilinear"})
        for name, pil, values in MOVES
    ),
]
WITHOUT_VALUE = {"identity", "autocontrast", "equalize", "invert"}


@st.composite
def batches(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[Levels, list[float]]:
    """Images [B, H, W, C]: noise of few or many levels, or smooth; of any small shape."""
    count, channels = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3]))
    shape = (count, draw(st.integers(1, 40)), draw(st.integers(1, 40)), channels)
    kind = draw(st.sampled_from(["noise", "few", "smooth", "elements"]))
    if kind == "elements":
        shape = (count, min(shape[1], 6), min(shape[2], 6), channels)
        images = draw(hnp.arrays(np.uint8, shape))
    else:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        images = rng.integers(0, 256, shape, dtype=np.uint8)
        if kind == "few":
            low = draw(st.integers(0, 255))
            images = (low + images.astype(int) % min(7, 256 - low)).astype(np.uint8)
        if kind == "smooth":
            ramp = np.add.outer(np.arange(shape[1]), 2 * np.arange(shape[2])) * 255
            images = np.broadcast_to(
                (ramp // max(1, ramp.max() // 255 + 1))[None, :, :, None], shape
            ).astype(np.uint8)
    return images, draw(st.lists(values, min_size=count, max_size=count))


def by_pil(case: Case, images: Levels, values: list[float]) -> Levels:
    done = []
    for image, value in zip(images, values, strict=True):
        result = case.pil(
            Image.fromarray(image.squeeze(2) if image.shape[2] == 1 else image), value
        )
        done.append(np.asarray(result).reshape(image.shape))
    return np.stack(done)


def by_tapr(case: Case, images: torch.Tensor, values: list[float]) -> torch.Tensor:
    op = getattr(ops, case.name)
    if case.name in WITHOUT_VALUE:
        return op(images)  # type: ignore[no-any-return]
    return op(images, torch.tensor(values, dtype=torch.float64), **case.options)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: "-".join([case.name, *case.options.values()])
)
@settings(max_examples=60)
@given(data=st.data())
def test_op_equals_pil(case: Case, data: st.DataObject) -> None:
    images, values = data.draw(batches(case.values))
    expected = by_pil(case, images, values).astype(int)
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
    got = by_tapr(case, tensor, values).permute(0, 2, 3, 1).numpy().astype(int)
    difference = np.abs(got - expected)
    assert difference.max() <= case.worst
    assert (difference == 0).mean() >= case.equal
    floats = by_tapr(case, tensor.float() / 255, values).permute(0, 2, 3, 1).numpy()
    assert np.abs(floats * 255 - expected).max() <= max(1, case.worst) + 1e-3


@pytest.mark.parametrize(("resample", "worst"), [("nearest", 0), ("bilinear", 1)])
def test_round_angles_put_places_on_the_very_edge(resample: str, worst: int) -> None:
    angles = [15.0 * number for number in range(-24, 25)]
    rng = np.random.default_rng(0)
    for height, width in [(1, 1), (1, 11), (2, 5), (7, 7), (8, 8), (12, 4), (12, 5)]:
        images = rng.integers(0, 256, (len(angles), height, width, 1), dtype=np.uint8)
        expected = by_pil(Case("rotate", rotate(resample), NONE), images, angles).astype(int)
        tensor = torch.from_numpy(images).permute(0, 3, 1, 2)
        turned = ops.rotate(tensor, torch.tensor(angles), resample=resample)
        got = turned.permute(0, 2, 3, 1).numpy().astype(int)
        assert np.abs(got - expected).max() <= worst
