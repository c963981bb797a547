"""Residual networks for 32 x 32 images: ResNet-20, and the quick ones that the package ships.

Each has a twin with a second head, which tells how an image is rotated.
"""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from tapr.models.inputs import Normalize


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut.append(nn.Conv2d(channels_in, channels, 1, stride, bias=False))
            self.shortcut.append(nn.BatchNorm2d(channels))

    def forward(self, features: Tensor) -> Tensor:
        """Halve the resolution when the stride is two."""
        hidden = functional.relu(self.bn1(self.conv1(features)))
        return functional.relu(self.bn2(self.conv2(hidden)) + self.shortcut(features))


class SmallResNet(nn.Module):
    """A stem, stages of basic blocks of falling resolution, average pooling, a linear head.

    A stem of stride two does all work at half the resolution: on a CPU that is what makes it quick.
    """

    def __init__(
        self, stem: nn.Conv2d, widths: Sequence[int], blocks: Sequence[int], classes: int
    ) -> None:
        super().__init__()
        self.normalize = Normalize()
        self.conv1 = stem
        self.bn1 = nn.BatchNorm2d(stem.out_channels)
        self.stages = nn.Sequential()
        for (before, width), count in zip(
            pairwise((stem.out_channels, *widths)), blocks, strict=True
        ):
            stride = 2 if len(self.stages) else 1
            stage = [BasicBlock(before, width, stride)]
            stage += [BasicBlock(width, width, 1) for _ in range(count - 1)]
            self.stages.append(nn.Sequential(*stage))
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K] of images [B, 3, H, W] in [0, 1]."""
        features = functional.relu(self.bn1(self.conv1(self.normalize(images))))
        logits: Tensor = self.fc(self.stages(features).mean((2, 3)))
        return logits


class RotationResNet(SmallResNet):
    """The same with a second head, for rotations, as TTT wants it (Sun et al., ICML 2020).

    The two heads share all but the last stage. That of rotations is a block of its own, twice as
    wide as what they share, average pooling, and a linear layer.
    """

    def __init__(
        self, stem: nn.Conv2d, widths: Sequence[int], blocks: Sequence[int], classes: int
    ) -> None:
        super().__init__(stem, widths, blocks, classes)
        del self.fc  # it comes last: the last linear layer of a model is its classifier
        width = 2 * widths[-2]
        self.turns = nn.Sequential(
            BasicBlock(widths[-2], width, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(width, 4),
        )
        self.fc = nn.Linear(widths[-1], classes)

    def rotation(self, images: Tensor) -> Tensor:
        """Logits [B, 4] of the quarter turns that images [B, 3, H, W] in [0, 1] are rotated by."""
        features = functional.relu(self.bn1(self.conv1(self.normalize(images))))
        logits: Tensor = self.turns(self.stages[:-1](features))
        return logits
