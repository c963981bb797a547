"""ResNet-50 (He et al. 2016) with torchvision's parameter names, which timm shares."""

from torch import Tensor, nn
from torch.nn import functional

from tapr.models.inputs import Normalize

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
EXPANSION = 4


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 (with the stride), 1 x 1, beside a shortcut."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels = width * EXPANSION
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or channels_in != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, features: Tensor) -> Tensor:
        """Halve the resolution when the stride is two."""
        hidden = functional.relu(self.bn1(self.conv1(features)))
        hidden = functional.relu(self.bn2(self.conv2(hidden)))
        shortcut = features if self.downsample is None else self.downsample(features)
        return functional.relu(self.bn3(self.conv3(hidden)) + shortcut)


class ResNet(nn.Module):
    """Stages of bottlenecks; (3, 4, 6, 3) of width 64 is ResNet-50."""

    def __init__(
        self, classes: int, blocks: tuple[int, int, int, int] = (3, 4, 6, 3), width: int = 64
    ) -> None:
        super().__init__()
        self.normalize = Normalize(IMAGENET_MEAN, IMAGENET_STD)
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(blocks[0], width, width, 1)
        self.layer2 = _stage(blocks[1], width * 4, width * 2, 2)
        self.layer3 = _stage(blocks[2], width * 8, width * 4, 2)
        self.layer4 = _stage(blocks[3], width * 16, width * 8, 2)
        self.fc = nn.Linear(width * 32, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K] of images [B, 3, H, W] in [0, 1]."""
        features = functional.relu(self.bn1(self.conv1(self.normalize(images))))
        features = self.layer1(functional.max_pool2d(features, 3, 2, 1))
        features = self.layer4(self.layer3(self.layer2(features)))
        logits: Tensor = self.fc(features.mean((2, 3)))
        return logits


def _stage(count: int, channels_in: int, width: int, stride: int) -> nn.Sequential:
    first = Bottleneck(channels_in, width, stride)
    rest = (Bottleneck(width * EXPANSION, width, 1) for _ in range(count - 1))
    return nn.Sequential(first, *rest)
