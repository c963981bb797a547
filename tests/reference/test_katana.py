"""CoTTA's augmentation against its recipe, written out for one image, in float64."""

import colorsys
import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tapr.augment import Katana, KatanaParams


def grey(image: Tensor) -> Tensor:
    return 0.2989 * image[0] + 0.587 * image[1] + 0.114 * image[2]


def hue(image: Tensor, turns: float) -> Tensor:
    result = torch.empty_like(image)
    for row in range(image.shape[1]):
        for column in range(image.shape[2]):
            h, s, v = colorsys.rgb_to_hsv(*image[:, row, column].tolist())
            result[:, row, column] = image.new_tensor(colorsys.hsv_to_rgb((h + turns) % 1, s, v))
    return result


def coloured(image: Tensor, params: KatanaParams) -> Tensor:
    brightness, contrast, saturation, turns, gamma = params.factor[0].tolist()
    for op in params.order[0].tolist():
        if op == 0:
            image = image * brightness
        elif op == 1:
            image = contrast * image + (1 - contrast) * grey(image).mean()
        elif op == 2:
            image = saturation * image + (1 - saturation) * grey(image)
        elif op == 3:
            image = hue(image, turns)
        else:
            image = image.clamp(1e-8, 1) ** gamma
        image = image.clamp(0, 1)
    return image


def written_out(image: Tensor, params: KatanaParams, padding: str, blur: bool) -> Tensor:
    """Pad by half, turn the padded image (black outside), blur, crop the middle, flip, noise."""
    image = coloured(image, params)[None]
    height, width = image.shape[2:]
    y, x = height // 2, width // 2
    padded = functional.pad(image, (x, x, y, y), mode=padding)
    tall, wide = padded.shape[2:]
    angle, scale = math.radians(float(params.degrees[0])), float(params.scale[0])
    right, down = params.shift[0].tolist()
    cosine, sine = math.cos(angle) / scale, math.sin(angle) / scale
    pixels = torch.tensor(
        [
            [cosine, sine, -cosine * right - sine * down],
            [-sine, cosine, sine * right - cosine * down],
        ],
        dtype=torch.float64,
    )
    theta = pixels.clone()  # in units of half a side
    theta[0, 1] *= tall / wide
    theta[1, 0] *= wide / tall
    theta[0, 2] *= 2 / wide
    theta[1, 2] *= 2 / tall
    grid = functional.affine_grid(theta[None], [1, 3, tall, wide], align_corners=False)
    moved = functional.grid_sample(padded, grid, padding_mode="zeros", align_corners=False)
    if blur:
        taps = torch.exp(-0.5 * (torch.arange(-2, 3).double() / params.sigma[0]) ** 2)
        kernel = torch.outer(taps, taps) / taps.sum() ** 2
        moved = functional.conv2d(
            functional.pad(moved, (2, 2, 2, 2), mode="reflect"),
            kernel.expand(3, 1, 5, 5),
            groups=3,
        )
    cropped = moved[0, :, y : y + height, x : x + width]
    cropped = cropped.flip(2) if params.flip[0] else cropped
    return (cropped + params.noise[0]).clamp(0, 1)


@pytest.mark.parametrize("shape", [(32, 32), (17, 24)])
@pytest.mark.parametrize(("padding", "mode"), [("edge", "replicate"), ("reflect", "reflect")])
def test_the_augmentation_is_the_recipe(shape: tuple[int, int], padding: str, mode: str) -> None:
    blur = padding == "edge"
    augmentation = Katana(padding=padding, blur=blur, noise=blur)
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(12, 3, *shape, generator=generator, dtype=torch.float64)
    images[0] = images[0, :1]  # grey: its hue is nothing
    params = augmentation.sample(images.shape, generator)
    ours = augmentation.transform(images, params)
    for place, image in enumerate(images):
        own = KatanaParams(*(part[place : place + 1] for part in params))
        expected = written_out(image, own, mode, blur)
        torch.testing.assert_close(ours[place], expected, rtol=0, atol=1e-9)


def test_the_draws_lie_in_their_ranges() -> None:
    params = Katana().sample((5000, 3, 32, 32), torch.Generator().manual_seed(0))
    for place, (low, high) in enumerate(
        [(0.6, 1.4), (0.7, 1.3), (0.5, 1.5), (-0.06, 0.06), (0.7, 1.3)]
    ):
        drawn = params.factor[:, place]
        assert low <= drawn.min() < low + 0.01
        assert high - 0.01 < drawn.max() <= high
    assert params.degrees.abs().max() <= 15
    assert set(params.shift.flatten().tolist()) == set(range(-4, 5))  # 1/16 of 64
    assert 0.9 <= params.scale.min() <= params.scale.max() <= 1.1
    assert 0.001 <= params.sigma.min() <= params.sigma.max() <= 0.5
    assert 0.45 < params.flip.double().mean() < 0.55
    assert abs(float(params.noise.std()) - 0.005) < 1e-4
    assert {tuple(row) for row in params.order.sort(1).values.tolist()} == {(0, 1, 2, 3, 4)}
    assert len({tuple(row) for row in params.order.tolist()}) == 120


def test_batchwide_shares_everything_but_the_noise() -> None:
    params = Katana(batchwide=True).sample((6, 3, 8, 8), torch.Generator().manual_seed(0))
    for name, part in params._asdict().items():
        same = bool((part == part[:1]).all())
        assert same == (name != "noise"), name
    again = Katana(batchwide=True).sample((6, 3, 8, 8), torch.Generator().manual_seed(1))
    assert not torch.equal(params.factor, again.factor)
