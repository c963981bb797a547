import numpy as np
import pytest

from tapr.corruptions import STANDARD, corrupt, names_of
from tapr.corruptions.common import Draws
from tapr.errors import InputError, UnknownNameError

IMAGES = np.full((3, 32, 32, 3), 100, np.uint8)


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian_noise'"):
        corrupt(IMAGES, "gausian_noise", 3)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (IMAGES.astype(np.float32), "uint8 array, got float32"),
        (IMAGES.tolist(), "uint8 array, got list"),
        (IMAGES[0], r"\[N, H, W, 3\], got \[32, 32, 3\]"),
        (IMAGES[..., :1], "grey"),
        (IMAGES.transpose(0, 3, 1, 2), r"got \[3, 3, 32, 32\]"),
        (IMAGES[:, :7], "at least 8 x 8 pixels, got 7 x 32"),
    ],
)
def test_images_that_are_none_are_refused(images: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corrupt(images, "fog", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        (np.arange(2), "3 whole numbers"),
        (np.arange(3.0), "float64"),
        (np.array([0, -1, 2]), "at least 0, got -1"),
    ],
)
def test_indices_that_do_not_fit_are_refused(indices: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        corrupt(IMAGES, "fog", 3, indices=indices)


def test_the_constants_change_above_32_pixels() -> None:
    def change(height: int, width: int) -> float:
        grey = np.full((8, height, width, 3), 128, np.uint8)
        return float(corrupt(grey, "gaussian_noise", 3).std() / 255)

    assert change(32, 32) == pytest.approx(0.08, rel=0.03)
    assert change(32, 64) == pytest.approx(0.08, rel=0.03)
    assert change(33, 33) == pytest.approx(0.18, rel=0.03)


def test_groups_of_names() -> None:
    assert names_of(["standard"]) == list(STANDARD)
    assert len(names_of(["all", "fog"])) == 19
    with pytest.raises(UnknownNameError):
        names_of(["fgo"])


def test_draws_of_an_image_depend_on_its_number_alone() -> None:
    together = Draws(5, np.array([3, 9]))
    alone = Draws(5, np.array([9]))
    for _ in range(2):  # the second draw is another one, and as independent
        np.testing.assert_array_equal(together.normal(4, 5)[1], alone.normal(4, 5)[0])
        np.testing.assert_array_equal(together.uniform(-1, 1)[1:], alone.uniform(-1, 1))


def test_draws_do_not_repeat() -> None:
    draws = Draws(5, np.arange(100))
    values = np.concatenate([draws.uniform(0, 1, 50), draws.uniform(0, 1, 50)]).ravel()
    assert len(np.unique(values)) > 0.999 * len(values)
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01


def test_draws_have_the_distributions_they_say() -> None:
    draws = Draws(1, np.arange(50))
    normal = draws.normal(2000)
    assert abs(normal.mean()) < 0.02
    assert normal.std() == pytest.approx(1, rel=0.01)
    whole = draws.integers(-2, 2, 2000)
    np.testing.assert_array_equal(np.unique(whole), [-2, -1, 0, 1])
    assert abs(whole.mean() + 0.5) < 0.02
    counts = draws.poisson(np.full((50, 2000), 6.5, np.float32))
    assert counts.mean() == pytest.approx(6.5, rel=0.01)
    assert counts.var() == pytest.approx(6.5, rel=0.03)
