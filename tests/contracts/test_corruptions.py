"""What every corruption owes, at a CIFAR size and at a larger one that is not square."""

import random
from itertools import pairwise

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tapr.corruptions import CORRUPTIONS, EXTRA, STANDARD, corrupt
from tapr.errors import InputError

Images = NDArray[np.uint8]

CERTAIN = {
    "brightness",
    "contrast",
    "defocus_blur",
    "gaussian_blur",
    "jpeg_compression",
    "pixelate",
    "saturate",
    "zoom_blur",
}
# Their published constants do not grow in every respect: these may do less at a higher severity.
UNEVEN = {"elastic_transform", "frost", "glass_blur", "saturate", "spatter"}

every = pytest.mark.parametrize("name", list(CORRUPTIONS))
SEVERITIES = (1, 3, 5)


def natural(count: int, height: int, width: int) -> Images:
    """Smooth colours with sharp borders, more like photographs than noise is."""
    generator = np.random.default_rng(7)
    pictures = []
    for _ in range(count):
        coarse = generator.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        picture = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
        top, left = generator.integers(2, [height // 2, width // 2])
        picture[top : top + height // 3, left : left + width // 4] = generator.integers(0, 256, 3)
        pictures.append(picture.astype(np.uint8))
    return np.stack(pictures)


SMALL = natural(6, 32, 32)
LARGE = natural(2, 40, 56)
both_sizes = pytest.mark.parametrize("images", [SMALL, LARGE], ids=["32x32", "40x56"])


@pytest.fixture(autouse=True)
def _fabricated_frost(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = tuple(natural(1, 200 + 20 * number, 300)[0] for number in range(5))
    monkeypatch.setattr("tapr.corruptions.weather.photographs", lambda: pictures)


def test_there_are_fifteen_and_four() -> None:
    assert len(STANDARD) == 15
    assert len(EXTRA) == 4
    assert tuple(CORRUPTIONS) == STANDARD + EXTRA


@every
@both_sizes
def test_size_and_type_are_kept_and_the_input_is_not_written(images: Images, name: str) -> None:
    before = images.copy()
    for severity in SEVERITIES:
        corrupted = corrupt(images, name, severity)
        assert corrupted.shape == images.shape
        assert corrupted.dtype == np.uint8
        assert corrupted.flags.writeable
        assert (corrupted != images).any(), severity
        np.testing.assert_array_equal(images, before)


@every
@both_sizes
def test_any_subset_in_any_order_gets_the_same_pictures(images: Images, name: str) -> None:
    order = np.arange(len(images))[::-1]
    for severity in SEVERITIES:
        whole = corrupt(images, name, severity, seed=3)
        backwards = corrupt(images[order], name, severity, seed=3, indices=order)
        np.testing.assert_array_equal(backwards, whole[order], f"severity {severity}")
        for number in (0, len(images) - 1):
            one = corrupt(images[[number]], name, severity, seed=3, indices=np.array([number]))
            np.testing.assert_array_equal(one[0], whole[number], f"severity {severity}")


@every
def test_the_pieces_of_a_long_batch_do_not_show(name: str) -> None:
    long = np.tile(SMALL, (23, 1, 1, 1))  # 138 images: more than one piece
    whole = corrupt(long, name, 5)
    tail = corrupt(long[120:], name, 5, indices=np.arange(120, 138))
    np.testing.assert_array_equal(whole[120:], tail)


@every
@both_sizes
def test_the_seed_and_the_number_decide_the_chance(images: Images, name: str) -> None:
    first = corrupt(images, name, 4, seed=1)
    np.testing.assert_array_equal(corrupt(images, name, 4, seed=1), first)
    another_seed = corrupt(images, name, 4, seed=2)
    another_number = corrupt(images, name, 4, seed=1, indices=np.arange(len(images)) + 50)
    if name in CERTAIN:
        np.testing.assert_array_equal(another_seed, first)
        np.testing.assert_array_equal(another_number, first)
    else:
        assert (another_seed != first).any(axis=(1, 2, 3)).all()
        assert (another_number != first).any(axis=(1, 2, 3)).all()


@every
def test_the_global_generators_are_left_alone(name: str) -> None:
    def state() -> tuple[object, ...]:
        numpys = repr(np.random.get_state(legacy=False))  # noqa: NPY002
        return random.getstate(), numpys, torch.get_rng_state().numpy().tobytes()

    before = state()
    corrupt(SMALL, name, 5)
    assert state() == before


@pytest.mark.parametrize("name", sorted(set(CORRUPTIONS) - UNEVEN))
@both_sizes
def test_a_higher_severity_does_more(images: Images, name: str) -> None:
    many = np.tile(images, (8, 1, 1, 1))
    changes = [
        float(((corrupt(many, name, severity).astype(float) - many) ** 2).mean())
        for severity in range(1, 6)
    ]
    assert all(low <= 1.1 * high for low, high in pairwise(changes)), changes
    assert changes[4] > 1.2 * changes[0]


@every
def test_black_white_and_tiny_images_are_defined(name: str) -> None:
    for value in (0, 255):
        for size in (8, 32, 33):
            flat = np.full((1, size, size, 3), value, np.uint8)
            assert corrupt(flat, name, 5).shape == flat.shape


@every
def test_no_images_give_no_images(name: str) -> None:
    assert corrupt(SMALL[:0], name, 3).shape == (0, 32, 32, 3)


@every
def test_views_and_read_only_arrays_are_taken(name: str) -> None:
    flipped = SMALL[:2, :, ::-1]
    flipped.flags.writeable = False
    np.testing.assert_array_equal(corrupt(flipped, name, 2), corrupt(flipped.copy(), name, 2))


@pytest.mark.parametrize("severity", [0, 6, -1, 2.5, 3.0, True, "3"])
def test_a_severity_outside_one_to_five_is_refused(severity: int) -> None:
    with pytest.raises(InputError, match="severity from 1 to 5"):
        corrupt(SMALL, "fog", severity)
