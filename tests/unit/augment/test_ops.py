import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from tapr.augment import geometry, ops
from tapr.errors import InputError, UnknownNameError


def whole(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


WRONG = {
    "two channels": (whole(1, 2, 4, 4), r"1 or 3 channels, got \[1, 2, 4, 4\]"),
    "no batch": (whole(3, 4, 4), r"expected images \[B, C, H, W\]"),
    "no pixels": (whole(1, 3, 0, 4), r"expected sides of 1 to 4096 pixels, got \[0, 4\]"),
    "too large": (torch.rand(1, 3, 2, 2) * 255, r"expected images in \[0, 1\], got maximum"),
    "negative": (-torch.ones(1, 3, 2, 2), r"expected images in \[0, 1\], got minimum -1"),
    "NaN": (torch.full((1, 3, 2, 2), torch.nan), r"expected images in \[0, 1\]"),
    "int64": (whole(1, 3, 2, 2).long(), "expected uint8 or float images, got torch.int64"),
}


@pytest.mark.parametrize(("images", "message"), WRONG.values(), ids=WRONG.keys())
def test_wrong_images_are_refused(images: torch.Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ops.invert(images)
    with pytest.raises(InputError, match=message):
        ops.rotate(images, torch.zeros(1))


def test_wrong_values_are_refused() -> None:
    with pytest.raises(InputError, match=r"expected values of shape \[2\], got \[3\]"):
        ops.solarize(whole(2, 3, 4, 4), torch.zeros(3))
    with pytest.raises(InputError, match="expected finite values"):
        ops.brightness(whole(1, 3, 4, 4), torch.tensor([torch.nan]))
    with pytest.raises(InputError, match="expected values within ±4, got 5"):
        ops.shear_x(whole(1, 3, 4, 4), torch.tensor([5.0]))
    with pytest.raises(UnknownNameError, match="unknown resampling 'bilinaer'; did you mean"):
        ops.rotate(whole(1, 3, 4, 4), torch.tensor([5.0]), resample="bilinaer")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [-1.0, 0.0, 1.4, 5.0, 40.0])
def test_cutout_equals_the_released_code(channels: int, side: float) -> None:
    height, width = 12, 20
    centres = torch.rand(50, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    images = whole(50, channels, height, width)
    got = ops.cutout(images, torch.full((50,), side), centres)
    for image, centre, changed in zip(images, centres.tolist(), got, strict=True):
        expected = Image.fromarray(image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())
        if side >= 0:
            x = int(max(0, centre[0] * width - side / 2))
            y = int(max(0, centre[1] * height - side / 2))
            box = (x, y, min(width, x + side), min(height, y + side))
            colour = (125, 123, 114) if channels == 3 else (123, 123, 123)
            ImageDraw.Draw(expected).rectangle(box, colour)
        assert np.array_equal(
            changed.expand(3, -1, -1).permute(1, 2, 0).numpy(), np.asarray(expected)
        )


def test_grey_of_the_cutout_is_that_of_pil() -> None:
    assert Image.new("RGB", (1, 1), (125, 123, 114)).convert("L").getpixel((0, 0)) == 123


def test_posterize_below_one_bit_keeps_one() -> None:
    images = whole(2, 1, 8, 8)
    assert torch.equal(
        ops.posterize(images, torch.tensor([0.0, 9.0])),
        ops.posterize(images, torch.tensor([1.0, 8.0])),
    )


def test_float_images_are_rounded_to_the_nearest_level() -> None:
    images = torch.tensor([[[[0.0, 0.4 / 255, 0.6 / 255, 1.0]]]])
    assert (ops.identity(images) * 255).flatten().tolist() == [0, 0, 1, 255]


def test_far_away_is_black() -> None:
    images = whole(1, 3, 5, 5)
    for resample in ("nearest", "bilinear"):
        assert ops.translate_x(images, torch.tensor([-1e5]), resample=resample).max() == 0


def test_every_public_op_says_what_it_does() -> None:
    from tapr.augment.grouped import NAMES

    assert all(getattr(ops, name).__doc__ for name in NAMES)


@pytest.mark.parametrize("fill", [0, 128])
def test_shifts_are_what_the_nearest_pixel_gives(fill: int) -> None:
    images = whole(7, 3, 6, 9)
    values = np.array([0.0, 2.0, -3.0, 3.5, -0.5, 40.0, -1e5])
    for name in ("translate_x", "translate_y"):
        matrix = geometry.MATRICES[name](values, 6, 9)
        nearest = geometry.RESAMPLING["nearest-grey" if fill else "nearest"]
        expected = nearest.run(images, nearest.plan(matrix, images))
        shifts = geometry.shifts(matrix, images)
        assert torch.equal(geometry.shifted(images, shifts, fill), expected)
