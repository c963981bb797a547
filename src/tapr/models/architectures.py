"""A string becomes a network: `build("wrn-28-10", classes=10)`."""

import re
from collections.abc import Callable, Mapping
from functools import partial

from torch import nn

from tapr.errors import InputError
from tapr.models.inputs import Normalize
from tapr.models.resnet import ResNet
from tapr.models.small import RotationResNet, SmallResNet
from tapr.models.wideresnet import WideResNet
from tapr.registry import Registry

WIDE_RESNET = re.compile(r"wrn-(\d{1,4})-(\d{1,4})")
HALF = (0.5, 0.5, 0.5)


# name -> the stem's channels, side, stride and padding; channels and blocks of each stage
SMALL: Mapping[str, tuple[tuple[int, int, int, int], tuple[int, ...], tuple[int, ...]]] = {
    "small": ((32, 4, 2, 1), (32, 64, 128), (1, 1, 1)),
    "small-wide": ((32, 4, 2, 1), (32, 64, 256), (1, 1, 1)),
    "small-narrow": ((16, 4, 2, 1), (16, 32, 64), (1, 1, 1)),
    "resnet-20": ((16, 3, 1, 1), (16, 32, 64), (3, 3, 3)),
}
ROTATION = "-rotation"  # behind the name of one of these: its twin with a rotation head


def _small(kind: type[SmallResNet], name: str, classes: int) -> nn.Module:
    (channels, side, stride, padding), widths, blocks = SMALL[name]
    stem = nn.Conv2d(3, channels, side, stride, padding, bias=False)
    return kind(stem, widths, blocks, classes)


def _augmix(classes: int) -> nn.Module:
    model = WideResNet(40, 2, classes)
    model.normalize = Normalize(HALF, HALF)  # its checkpoint does not say: RobustBench's code does
    return model


ARCHITECTURES: Registry[Callable[[int], nn.Module]] = Registry(
    "architecture",
    {
        **{name: partial(_small, SmallResNet, name) for name in SMALL},
        **{name + ROTATION: partial(_small, RotationResNet, name) for name in SMALL},
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


def with_rotation(architecture: str) -> str:
    """The architecture's twin, which has a second head for rotations.

    >>> with_rotation("small")
    'small-rotation'
    """
    name = architecture.removesuffix(ROTATION) + ROTATION
    if name not in ARCHITECTURES:
        raise InputError(
            f"expected an architecture that has a twin with a rotation head ({', '.join(SMALL)}), "
            f"got {architecture}"
        )
    return name
