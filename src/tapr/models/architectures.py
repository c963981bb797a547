"""A string becomes a network: `build("wrn-28-10", classes=10)`."""

import re
from collections.abc import Callable

from torch import nn

from tapr.errors import InputError
from tapr.models.inputs import Normalize
from tapr.models.resnet import ResNet
from tapr.models.small import SmallResNet
from tapr.models.wideresnet import WideResNet
from tapr.registry import Registry

WIDE_RESNET = re.compile(r"wrn-(\d{1,4})-(\d{1,4})")
HALF = (0.5, 0.5, 0.5)


def _small(classes: int) -> nn.Module:
    return SmallResNet(nn.Conv2d(3, 32, 4, 2, 1, bias=False), (32, 64, 128), (1, 1, 1), classes)


def _small_wide(classes: int) -> nn.Module:
    return SmallResNet(nn.Conv2d(3, 32, 4, 2, 1, bias=False), (32, 64, 256), (1, 1, 1), classes)


def _small_narrow(classes: int) -> nn.Module:
    return SmallResNet(nn.Conv2d(3, 16, 4, 2, 1, bias=False), (16, 32, 64), (1, 1, 1), classes)


def _resnet_20(classes: int) -> nn.Module:
    return SmallResNet(nn.Conv2d(3, 16, 3, 1, 1, bias=False), (16, 32, 64), (3, 3, 3), classes)


def _augmix(classes: int) -> nn.Module:
    model = WideResNet(40, 2, classes)
    model.normalize = Normalize(HALF, HALF)  # its checkpoint does not say: RobustBench's code does
    return model


ARCHITECTURES: Registry[Callable[[int], nn.Module]] = Registry(
    "architecture",
    {
        "small": _small,
        "small-wide": _small_wide,
        "small-narrow": _small_narrow,
        "resnet-20": _resnet_20,
        "resnet-50": ResNet,
        "wrn-28-10": lambda classes: WideResNet(28, 10, classes),
        "wrn-40-2": lambda classes: WideResNet(40, 2, classes),
        "robustbench:Standard": lambda classes: WideResNet(28, 10, classes),
        "robustbench:Hendrycks2020AugMix_WRN": _augmix,
    },
)


def build(architecture: str, classes: int) -> nn.Module:
    """A network of that name with fresh weights drawn from torch's generator.

    >>> build("wrn-10-1", classes=3).fc.out_features
    3
    """
    if classes < 2:
        raise InputError(f"expected at least 2 classes, got {classes}")
    sizes = WIDE_RESNET.fullmatch(architecture)
    if sizes:
        return WideResNet(int(sizes[1]), int(sizes[2]), classes)
    return ARCHITECTURES[architecture](classes)
