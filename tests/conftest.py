"""Small models and images that many tests share."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

torch.set_num_threads(1)  # tiny tensors: a second thread only costs, and adds run-to-run noise


def conv_net(
    norm: Callable[[int], nn.Module] | None = nn.BatchNorm2d, classes: int = 5
) -> nn.Sequential:
    """Two convolutions with or without normalisation, and a linear head."""
    generator = torch.Generator().manual_seed(0)
    middle: list[nn.Module] = [norm(6)] if norm else []
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        *middle,
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32, classes),
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return model.eval()


@pytest.fixture
def make_model() -> Callable[..., nn.Sequential]:
    return conv_net


@pytest.fixture
def model() -> nn.Sequential:
    return conv_net()


@pytest.fixture
def images() -> Tensor:
    return torch.rand(8, 3, 10, 9, generator=torch.Generator().manual_seed(1))
