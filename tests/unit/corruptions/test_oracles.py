"""The batched arithmetic beside the plain, one-image way of writing it."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage

from tapr.corruptions import CORRUPTIONS, resampling
from tapr.corruptions.blur import _shuffle
from tapr.corruptions.common import Draws, Level
from tapr.corruptions.resampling import affine, displaced, motion
from tapr.corruptions.weather import _plasma

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (3, 20, 26, 3), dtype=np.uint8)
NUMBERS = np.arange(3)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_copies_one_pixel_after_the_other(reach: int) -> None:
    offsets = Draws(8, NUMBERS).integers(-reach, reach, 2, 20, 26)
    expected = IMAGES.copy()
    for image, (down, right) in zip(expected, offsets, strict=True):
        for row in range(20 - reach, reach, -1):
            for column in range(26 - reach, reach, -1):
                source = row + down[row, column], column + right[row, column]
                image[row, column] = image[source]
    np.testing.assert_array_equal(_shuffle(IMAGES, reach, Draws(8, NUMBERS)), expected)


@pytest.mark.parametrize("angle", [-135.0, -45.0, -17.0, 0.0, 30.0, 45.0])
def test_motion_is_a_weighted_walk_with_edges_that_go_on(angle: float) -> None:
    weights = np.exp(-(np.arange(9.0) ** 2) / (2 * 2.5**2))
    weights /= weights.sum()
    expected = np.zeros(IMAGES.shape)
    for step, weight in enumerate(weights):
        x = int(np.ceil(step * np.cos(np.deg2rad(angle)) - 0.5))
        y = int(np.ceil(step * np.sin(np.deg2rad(angle)) - 0.5))
        rows = np.clip(np.arange(20) + y, 0, 19)
        columns = np.clip(np.arange(26) + x, 0, 25)
        expected += weight * IMAGES[:, rows][:, :, columns]
    ours = motion(IMAGES, 4, 2.5, np.full(3, angle, np.float32))
    assert (ours == np.floor(np.round(expected * 257) / 257)).mean() > 0.999


def test_motion_gives_each_image_its_own_angle() -> None:
    angles = np.array([-40, 0, 33], np.float32)
    together = motion(IMAGES, 6, 2, angles)
    for number in NUMBERS:
        alone = motion(IMAGES[[number]], 6, 2, angles[[number]])
        np.testing.assert_array_equal(together[number], alone[0])


@pytest.mark.parametrize("sigma", [0.4, 1.0, 6.0])
def test_the_gaussian_matrix_is_scipys_filter(sigma: float) -> None:
    planes = GENERATOR.random((2, 3, 20, 26)).astype(np.float32)
    ours = resampling.separable(
        planes, resampling.gaussian(20, sigma), resampling.gaussian(26, sigma)
    )
    expected = ndimage.gaussian_filter(planes, sigma, axes=(2, 3), mode="nearest")
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("factor", [1.0, 1.03, 1.25, 2.25])
def test_the_zoom_matrix_is_scipys_zoom_of_the_middle(factor: float) -> None:
    plane = GENERATOR.random((32, 32)).astype(np.float32)
    size = int(np.ceil(32 / factor))
    top = (32 - size) // 2
    zoomed = ndimage.zoom(plane[top : top + size, top : top + size], factor, order=1)
    trim = (len(zoomed) - 32) // 2
    matrix = resampling.centre_zoom(32, factor)
    ours = resampling.separable(plane[None, None], matrix, matrix)[0, 0]
    np.testing.assert_allclose(ours, zoomed[trim : trim + 32, trim : trim + 32], atol=1e-5)


def test_displaced_is_scipys_sampling_with_reflected_edges() -> None:
    images = GENERATOR.random((3, 20, 26, 3)).astype(np.float32)
    offsets = GENERATOR.uniform(-9, 9, (3, 2, 20, 26)).astype(np.float32)
    ours = displaced(images, offsets)
    grid = np.mgrid[:20, :26]
    for image, offset, result in zip(images, offsets, ours, strict=True):
        for channel in range(3):
            expected = ndimage.map_coordinates(
                image[..., channel], grid + offset, order=1, mode="reflect"
            )
            np.testing.assert_allclose(result[..., channel], expected, atol=2e-5)


def test_affine_moves_the_anchors_to_where_they_should_be() -> None:
    ramp = np.stack(np.broadcast_arrays(*np.mgrid[:40.0, :40.0], 0.0), axis=-1)[None]
    shifts = np.array([[[1.5, -0.5], [0.25, 2.0], [-1.0, 1.0]]], np.float32)
    ours = affine(ramp.astype(np.float32), shifts)[0]
    anchors = 20 + 13 * np.array([[1, 1], [1, -1], [-1, -1]])
    for anchor, shift in zip(anchors, shifts[0], strict=True):
        x, y = anchor + shift
        values = [
            ndimage.map_coordinates(ours[..., channel], [[y], [x]], order=1)[0]
            for channel in (0, 1)
        ]
        np.testing.assert_allclose(values, anchor[::-1], atol=1e-4)


def plain_plasma(lots: NDArray[np.float32], decay: float) -> NDArray[np.float64]:
    """Diamond-square on a torus, point by point."""
    size = len(lots)
    cloud = np.zeros((size, size))
    wobble, step = 100.0, size
    while step >= 2:
        half = step // 2

        def fill(
            y: int, x: int, around: list[tuple[int, int]], wobble: float = wobble, half: int = half
        ) -> None:
            near = [cloud[(y + dy * half) % size, (x + dx * half) % size] for dy, dx in around]
            cloud[y, x] = sum(near) / 4 + wobble * wobble * lots[y, x]

        for y in range(half, size, step):
            for x in range(half, size, step):
                fill(y, x, [(-1, -1), (-1, 1), (1, -1), (1, 1)])
        for y in range(0, size, half):
            for x in range(0 if y % step else half, size, step):
                fill(y, x, [(-1, 0), (1, 0), (0, -1), (0, 1)])
        wobble, step = wobble / decay, half
    cloud -= cloud.min()
    cloud /= cloud.max()
    return cloud


def test_the_clouds_are_diamond_square_on_a_torus() -> None:
    lots = Draws(4, NUMBERS).uniform(-1, 1, 16, 16)
    ours = _plasma(13, 1.75, Draws(4, NUMBERS))
    for cloud, own_lots in zip(ours, lots, strict=True):
        np.testing.assert_allclose(cloud, plain_plasma(own_lots, 1.75), atol=1e-5)


@pytest.mark.parametrize("name", ["brightness", "saturate"])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_hsv_as_the_standard_library_has_it(name: str, severity: int) -> None:
    import colorsys

    raised = (0.05, 0.1, 0.15, 0.2, 0.3)[severity - 1]
    factor, shift = ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2))[severity - 1]
    pixels = IMAGES[:1].copy()
    pixels[0, 0, :4] = [[0, 0, 0], [255, 255, 255], [9, 9, 9], [0, 200, 0]]
    ours = CORRUPTIONS[name](pixels, Level(severity, large=False), Draws(0, NUMBERS[:1]))
    for pixel, result in zip(pixels.reshape(-1, 3), ours.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(pixel / 255).tolist())
        if name == "brightness":
            value = min(value + raised, 1)
        else:
            saturation = min(saturation * factor + shift, 1)
        expected = np.array(colorsys.hsv_to_rgb(hue, saturation, value)) * 255
        assert np.abs(result - np.floor(expected)).max() <= 1
