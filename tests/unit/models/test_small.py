import pytest
import torch
from torch import nn

from tapr.errors import InputError, UnknownNameError
from tapr.models import build
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
