import pytest
import torch
from scipy import stats

from tapr.augment import RandAugment, ops
from tapr.augment.grouped import NAMES
from tapr.augment.randaugment import LISTS, RandAugmentParams
from tapr.errors import InputError, UnknownNameError

SHAPE = (6000, 3, 32, 48)


def draw(augmentation: RandAugment, seed: int = 0) -> RandAugmentParams:
    return augmentation.sample(SHAPE, torch.Generator().manual_seed(seed))


def values_of(params: RandAugmentParams, name: str) -> torch.Tensor:
    return params.value[params.op == NAMES.index(name)]


@pytest.mark.parametrize("ops_list", ["paper", "released"])
def test_ops_are_drawn_uniformly(ops_list: str) -> None:
    params = draw(RandAugment(n=2, ops=ops_list))
    counts = params.op.flatten().bincount(minlength=len(NAMES))
    wanted = [NAMES.index(name) for name in LISTS[ops_list]]
    assert counts.sum() == counts[wanted].sum()
    assert stats.chisquare(counts[wanted].numpy()).pvalue > 0.01


def test_levels_are_drawn_from_one_to_m_and_the_two_ops_apart() -> None:
    params = draw(RandAugment(n=2, m=7))
    table = torch.zeros(7, 7)
    table.index_put_(
        (params.level[:, 0] - 1, params.level[:, 1] - 1), torch.ones(()), accumulate=True
    )
    assert params.level.min() == 1
    assert stats.chisquare(table.flatten().numpy()).pvalue > 0.01


def test_fixed_levels_are_m() -> None:
    assert set(draw(RandAugment(m=7, fixed=True)).level.flatten().tolist()) == {7}


def test_signs_and_places_are_uniform() -> None:
    params = draw(RandAugment(ops=["rotate", "cutout"]))
    positive = (values_of(params, "rotate") > 0).sum().item()
    assert stats.binomtest(int(positive), len(values_of(params, "rotate"))).pvalue > 0.01
    for axis in (0, 1):
        assert stats.kstest(params.centre[..., axis].flatten().numpy(), "uniform").pvalue > 0.01


# The released code at level 1 of 30, FACTS.md.
RELEASED = {
    "rotate": 1.0,
    "shear_x": 0.01,
    "translate_y": 100 / 30,
    "solarize": 256 / 30,
    "posterize": 1.0,
    "color": 0.16,
    "brightness": 0.16,
    "solarize_add": 110 / 30,
    "cutout": 40 / 30,
}


@pytest.mark.parametrize(("name", "expected"), RELEASED.items())
def test_released_scale_at_level_one(name: str, expected: float) -> None:
    values = values_of(draw(RandAugment(ops=[name])), name)
    assert values.abs().max().item() == pytest.approx(expected)
    assert values.abs().min().item() == pytest.approx(expected)


# The centred scale at level 15 of 30, images 48 wide and 32 high; both signs where there are two.
CENTRED = {
    "rotate": {-15.0, 15.0},
    "translate_x": {-10.8, 10.8},
    "translate_y": {-7.2, 7.2},
    "solarize": {128.0},
    "posterize": {6.0},
    "contrast": {0.55, 1.45},
}


@pytest.mark.parametrize(("name", "expected"), CENTRED.items())
def test_centred_scale_at_level_fifteen(name: str, expected: set[float]) -> None:
    params = draw(RandAugment(m=15, scale="centred", ops=[name], fixed=True))
    assert {round(value, 6) for value in params.value.flatten().tolist()} == expected


def test_ops_are_applied_in_order() -> None:
    images = torch.randint(0, 256, (1, 3, 8, 8), dtype=torch.uint8)
    order = [NAMES.index("invert"), NAMES.index("solarize")]
    params = RandAugmentParams(
        op=torch.tensor([order]),
        level=torch.ones(1, 2, dtype=torch.int64),
        value=torch.tensor([[0.0, 200.0]], dtype=torch.float64),
        centre=torch.zeros(1, 2, 2, dtype=torch.float64),
    )
    expected = ops.solarize(ops.invert(images), torch.tensor([200.0]))
    assert torch.equal(RandAugment().transform(images, params), expected)


def test_released_is_the_authors_run() -> None:
    assert repr(RandAugment.released()) == (
        "RandAugment(n=1, m=1, scale='released', ops='released', fixed=True)"
    )


def test_captions_tell_op_and_level() -> None:
    augmentation = RandAugment(m=30, ops=["rotate"], fixed=True)
    params = augmentation.sample((1, 3, 8, 8), torch.Generator().manual_seed(0))
    sign = "+" if params.value > 0 else "-"
    assert augmentation.describe(params) == [f"rotate {sign}30°\nlevel 30"]


@pytest.mark.parametrize("wrong", [{"n": 0}, {"n": 1000}, {"m": -1}, {"m": 31}, {"m": 1.5}])
def test_wrong_numbers_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"expected \w to be a whole number"):
        RandAugment(**wrong)  # type: ignore[arg-type]


def test_unknown_names_get_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown scale 'centered'; did you mean 'centred'"):
        RandAugment(scale="centered")
    with pytest.raises(UnknownNameError, match="unknown op 'rotat'; did you mean 'rotate'"):
        RandAugment(ops=["rotat"])
    with pytest.raises(UnknownNameError, match="unknown list of ops 'papper'; did you mean"):
        RandAugment(ops="papper")
    with pytest.raises(InputError, match="expected at least one op"):
        RandAugment(ops=[])
