"""Which parameters a scope takes."""

import pytest
from torch import nn

import tapr
from tapr.models.scope import SCOPES, is_normalisation, select


class FusedNormAct2d(nn.Module):
    """A normalisation of a library's own, known by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(nn.Linear(1, 1).weight.detach())


def names(model: nn.Module, scope: str) -> set[str]:
    return set(select(model, SCOPES[scope](model)))


def test_named_scopes() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), FusedNormAct2d(), nn.Sequential(nn.Linear(4, 2))
    )
    every = {name for name, _ in model.named_parameters()}
    assert names(model, "all") == every
    assert names(model, "norm") == {"1.weight", "1.bias", "2.scale"}
    assert names(model, "backbone") == every - {"3.0.weight", "3.0.bias"}


def test_the_head_may_be_a_convolution() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1), nn.Flatten())
    assert names(model, "backbone") == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_no_head_is_said() -> None:
    with pytest.raises(tapr.TaprError, match="this model has neither"):
        SCOPES["backbone"](nn.BatchNorm2d(3))


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.BatchNorm3d(2), True),
        (nn.InstanceNorm1d(2), True),
        (nn.RMSNorm(2), True),
        (FusedNormAct2d(), True),
        (nn.Linear(2, 2), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), False),
    ],
)
def test_what_counts_as_normalisation(layer: nn.Module, expected: bool) -> None:
    assert is_normalisation(layer) is expected
