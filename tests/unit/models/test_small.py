import pytest
import torch
from torch import nn

from tapr.errors import InputError, UnknownNameError
from tapr.models import build, head
from tapr.models.architectures import SMALL, with_rotation
from tapr.models.inputs import Normalize

SIZES = {("small", 10): 309_322, ("small-wide", 100): 858_788, ("resnet-20", 10): 272_474}


@pytest.mark.parametrize(("architecture", "classes"), SIZES)
def test_sizes_and_shapes(architecture: str, classes: int) -> None:
    model = build(architecture, classes).eval()
    assert sum(value.numel() for value in model.parameters()) == SIZES[architecture, classes]
    with torch.no_grad():
        assert model(torch.rand(2, 3, 32, 32)).shape == (2, classes)


def test_all_normalisation_is_ordinary_batch_norm() -> None:
    kinds = {type(m) for m in build("small", 10).modules() if "Norm2d" in type(m).__name__}
    assert kinds == {nn.BatchNorm2d}


def test_normalisation_is_inside() -> None:
    model = build("small", 10).eval()
    plain = build("small", 10).eval()
    plain.load_state_dict(model.state_dict())
    model.normalize = Normalize((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    images = torch.rand(2, 3, 32, 32)
    mean, std = torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0.4, 0.5, 0.6])
    by_hand = (images - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    with torch.no_grad():
        assert torch.allclose(model(images), plain(by_hand), atol=1e-5)


def test_unknown_architecture_and_class_count() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'resnet-50'"):
        build("resnet50", 10)
    with pytest.raises(InputError, match="at least 2 classes, got 1"):
        build("small", 1)


def test_grey_images_are_refused_not_spread_over_three_channels() -> None:
    with pytest.raises(InputError, match="expected images with 3 channels, got 1"):
        build("small", 10)(torch.rand(2, 1, 32, 32))


@pytest.mark.parametrize("name", SMALL)
def test_a_twin_has_a_rotation_head_and_keeps_its_classifier(name: str) -> None:
    plain, twin = build(name, 7).eval(), build(with_rotation(name), 7).eval()
    images = torch.rand(2, 3, 32, 32)
    assert head.find(twin) == "fc"
    assert not hasattr(plain, "rotation")
    twin.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        torch.testing.assert_close(twin(images), plain(images))
        assert twin.rotation(images).shape == (2, 4)  # type: ignore[operator]


def test_the_two_heads_share_all_but_the_last_stage() -> None:
    twin = build("small-rotation", 7)
    twin.rotation(torch.rand(4, 3, 32, 32)).sum().backward()  # type: ignore[operator]
    moved = {name for name, value in twin.named_parameters() if value.grad is not None}
    assert {name.partition(".")[0] for name in moved} == {"conv1", "bn1", "stages", "turns"}
    assert not any(name.startswith("stages.2") for name in moved)


def test_an_architecture_without_a_twin() -> None:
    assert with_rotation("small-rotation") == "small-rotation"
    with pytest.raises(InputError, match=r"twin with a rotation head \(small, .*got wrn-40-2"):
        with_rotation("wrn-40-2")
