from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from scipy import stats

from tapr.augment import AugMix
from tapr.augment.augmix import LISTS, AugMixParams
from tapr.augment.grouped import NAMES
from tapr.errors import InputError, UnknownNameError

SHAPE = (6000, 3, 30, 60)


def draw(augmentation: AugMix, seed: int = 0) -> AugMixParams:
    return augmentation.sample(SHAPE, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("ops_list", ["paper", "released"])
def test_ops_are_drawn_uniformly(ops_list: str) -> None:
    counts = draw(AugMix(ops=ops_list)).op.flatten().bincount(minlength=len(NAMES))
    wanted = [NAMES.index(name) for name in LISTS[ops_list]]
    assert counts.sum() == counts[wanted].sum()
    assert stats.chisquare(counts[wanted].numpy()).pvalue > 0.01


def test_levels_are_uniform_up_to_the_severity() -> None:
    levels = draw(AugMix(severity=3)).level.flatten().numpy()
    assert stats.kstest(levels, stats.uniform(0.1, 2.9).cdf).pvalue > 0.01


def test_chain_lengths_are_uniform_up_to_the_depth() -> None:
    lengths = draw(AugMix(depth=4, width=2)).length.flatten().bincount()
    assert lengths[0] == 0
    assert stats.chisquare(lengths[1:].numpy()).pvalue > 0.01


def test_fixed_chains_have_the_whole_depth() -> None:
    assert set(draw(AugMix.released()).length.flatten().tolist()) == {3}


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_weights_are_dirichlet_and_the_rest_beta(alpha: float) -> None:
    params = draw(AugMix(width=3, alpha=alpha))
    assert torch.allclose(params.weight.sum(1), torch.ones((), dtype=torch.float64))
    for chain in range(3):
        marginal = stats.beta(alpha, 2 * alpha)
        assert stats.kstest(params.weight[:, chain].numpy(), marginal.cdf).pvalue > 0.01
    assert stats.kstest(params.keep.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.01


def test_tiny_alpha_chooses_one_chain() -> None:
    params = draw(AugMix(width=3, alpha=1e-4))
    assert params.weight.isfinite().all()
    chosen = params.weight.argmax(1).bincount(minlength=3)
    assert stats.chisquare(chosen.numpy()).pvalue > 0.01


# The parameter as AugMix's authors compute it from the level of 10; images 60 wide, 30 high.
FORMULAS: dict[str, Callable[[float], float]] = {
    "rotate": lambda level: int(level * 30 / 10),
    "shear_y": lambda level: level * 0.3 / 10,
    "translate_x": lambda level: int(level * (60 / 3) / 10),
    "translate_y": lambda level: int(level * (30 / 3) / 10),
    "solarize": lambda level: 256 - int(level * 256 / 10),
    "posterize": lambda level: max(1, 4 - int(level * 4 / 10)),
    "sharpness": lambda level: level * 1.8 / 10 + 0.1,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_values_follow_the_released_scale(name: str) -> None:
    params = draw(AugMix(severity=10, ops=[name]))
    expected = [FORMULAS[name](level) for level in params.level.flatten().tolist()]
    assert np.allclose(params.value.flatten().abs().numpy(), expected)
    if name in ("rotate", "shear_y", "translate_x", "translate_y"):
        moved = params.value[params.value != 0]
        assert stats.binomtest(int((moved > 0).sum()), len(moved)).pvalue > 0.01


def test_centred_scale_starts_at_the_image() -> None:
    params = draw(AugMix(severity=0.1, scale="centred", ops=["color", "posterize"]))
    color = params.op == NAMES.index("color")
    assert (params.value[color] - 1).abs().max() < 0.01
    assert set(params.value[~color].tolist()) == {8}


def test_mixture_equals_pil_and_numpy_by_hand() -> None:
    """Two chains, the second cut short, mixed with the original image."""
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
    places = [[NAMES.index("rotate"), NAMES.index("posterize")]] * 2
    params = AugMixParams(
        op=torch.tensor([places]),
        level=torch.ones(1, 2, 2, dtype=torch.float64),
        value=torch.tensor([[[5.0, 3.0], [-7.0, 2.0]]], dtype=torch.float64),
        length=torch.tensor([[2, 1]]),
        weight=torch.tensor([[0.25, 0.75]], dtype=torch.float64),
        keep=torch.tensor([0.4], dtype=torch.float64),
    )
    image, bilinear = Image.fromarray(array), Image.Resampling.BILINEAR
    first = np.asarray(ImageOps.posterize(image.rotate(5, bilinear), 3)).astype(float)
    second = np.asarray(image.rotate(-7, bilinear)).astype(float)
    expected = 0.4 * array + 0.6 * (0.25 * first + 0.75 * second)
    images = torch.from_numpy(array).permute(2, 0, 1).unsqueeze(0).double() / 255
    mixed = AugMix().transform(images, params)[0].permute(1, 2, 0).numpy() * 255
    # One level of bilinear rounding, which posterize may turn into a step of 32.
    assert np.abs(mixed - expected).max() <= 0.6 * (0.25 * 32 + 0.75) + 1e-6
    assert np.median(np.abs(mixed - expected)) < 1e-6
    assert np.abs(mixed - expected).mean() < 0.1


def test_all_kept_is_the_image() -> None:
    images = torch.rand(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    augmentation = AugMix()
    params = augmentation.sample(images.shape, torch.Generator().manual_seed(0))
    kept = params._replace(keep=torch.ones(4, dtype=torch.float64))
    assert torch.allclose(augmentation.transform(images, kept), images)


def test_released_is_the_authors_run() -> None:
    assert repr(AugMix.released()) == (
        "AugMix(severity=1.0, width=3, depth=3, alpha=1.0, scale='released', ops='released', "
        "fixed=True)"
    )


def test_captions_tell_the_chains() -> None:
    augmentation = AugMix(width=2, depth=2, ops=["invert"], fixed=True)
    params = augmentation.sample((1, 3, 8, 8), torch.Generator().manual_seed(0))
    params = params._replace(
        keep=torch.tensor([0.5], dtype=torch.float64),
        weight=torch.tensor([[0.2, 0.8]], dtype=torch.float64),
        length=torch.tensor([[2, 1]]),
    )
    assert augmentation.describe(params) == [
        "50% original\n10% invert\nthen invert\n40% invert",
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"severity": -1}, "expected severity from 0.1 to 10, got -1"),
        ({"severity": 11}, "expected severity from 0.1 to 10, got 11"),
        ({"severity": float("nan")}, "expected severity from 0.1 to 10, got nan"),
        ({"width": 0}, "expected width to be a whole number 1 to 100, got 0"),
        ({"depth": 101}, "expected depth to be a whole number 1 to 100, got 101"),
        ({"alpha": 0}, "expected alpha > 0, got 0"),
        ({"alpha": -1.0}, "expected alpha > 0, got -1"),
    ],
)
def test_wrong_numbers_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        AugMix(**wrong)  # type: ignore[arg-type]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown op 'colour'; did you mean 'color'"):
        AugMix(ops=["colour"])
    with pytest.raises(UnknownNameError, match="unknown scale 'release'; did you mean 'released'"):
        AugMix(scale="release")
