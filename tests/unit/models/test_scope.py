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


def staged(stems: list[str]) -> nn.Sequential:
    """Normalisation layers within blocks of these names, in this order."""
    model = nn.Sequential()
    for stem in stems:
        inner: nn.Module = model
        *path, last = stem.split(".")
        for part in path:
            if part not in dict(inner.named_children()):
                inner.add_module(part, nn.Module())
            inner = inner.get_submodule(part)
        inner.add_module(last, nn.LayerNorm(2))
    return model


TOPS = {
    "resnet": (["bn1", *(f"layer{n}.0.bn1" for n in (1, 2, 3))], ["layer4.0.bn1", "layer4.1.bn1"]),
    "timm vit": (
        [f"blocks.{n}.norm1" for n in range(9)],
        [*(f"blocks.{n}.norm1" for n in (9, 10, 11)), "norm"],
    ),
    "torchvision vit": (
        [f"encoder.layers.encoder_layer_{n}.ln_1" for n in range(9)],
        [*(f"encoder.layers.encoder_layer_{n}.ln_1" for n in (9, 10, 11)), "encoder.ln"],
    ),
    "wide resnet": (["block1.layer.0.bn1", "block2.layer.0.bn1"], ["block3.layer.0.bn1", "bn1"]),
    "wrapped": (
        ["1.bn1", "1.layer1.0.bn1", "1.layer2.0.bn1", "1.layer3.0.bn1"],
        ["1.layer4.0.bn1"],
    ),
}


@pytest.mark.parametrize("name", TOPS)
def test_the_top_quarter_of_the_blocks_is_left_out(name: str) -> None:
    below, top = TOPS[name]
    model = staged([*below, *top])
    found = {place.rpartition(".")[0] for place in names(model, "lower_norm")}
    assert found == set(below)


def test_tops_known_by_their_names_are_left_out_and_others_are_not() -> None:
    resnet, vit = (staged([*below, *top]) for below, top in (TOPS["resnet"], TOPS["timm vit"]))
    for model in (resnet, vit):
        assert names(model, "named_norm") == names(model, "lower_norm")
    below, top = TOPS["torchvision vit"]
    other = staged([*below, *top])
    assert names(other, "named_norm") == names(other, "norm")


def test_nothing_below_the_top_is_said() -> None:
    with pytest.raises(tapr.TaprError, match="below the top quarter of the model's blocks"):
        SCOPES["lower_norm"](staged(["layer1.0.bn1", "layer1.1.bn1", "norm"]))
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    assert names(plain, "lower_norm") == {"1.weight", "1.bias"}


def test_batch_norm_alone() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.GroupNorm(1, 3), nn.BatchNorm1d(3))
    assert names(model, "batch_norm") == {"0.weight", "0.bias"}
