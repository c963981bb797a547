"""Wide residual networks (Zagoruyko & Komodakis 2016) with RobustBench's parameter names."""

from torch import Tensor, nn
from torch.nn import functional

from tapr.errors import InputError
from tapr.models.inputs import Normalize


class PreActivationBlock(nn.Module):
    """Normalise, activate, convolve; twice, beside a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.convShortcut = (  # RobustBench's name
            None
            if channels_in == channels
            else nn.Conv2d(channels_in, channels, 1, stride, bias=False)
        )

    def forward(self, features: Tensor) -> Tensor:
        """The shortcut of a widening block starts after the first activation."""
        active = functional.relu(self.bn1(features))
        hidden: Tensor = self.conv2(functional.relu(self.bn2(self.conv1(active))))
        return hidden + (features if self.convShortcut is None else self.convShortcut(active))


class Stage(nn.Module):
    """Blocks of one width and resolution."""

    def __init__(self, count: int, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        first = PreActivationBlock(channels_in, channels, stride)
        rest = (PreActivationBlock(channels, channels, 1) for _ in range(count - 1))
        self.layer = nn.Sequential(first, *rest)

    def forward(self, features: Tensor) -> Tensor:
        """Run the blocks in order."""
        return self.layer(features)  # type: ignore[no-any-return]


class WideResNet(nn.Module):
    """WRN-depth-width: three stages of 16, 32 and 64 times `width` channels."""

    def __init__(self, depth: int, width: int, classes: int) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 or width < 1:
            raise InputError(
                "expected a depth of 6n + 4 (10, 16, 22, 28, 40, ...) and a width of at least 1, "
                f"got depth {depth}, width {width}"
            )
        count = (depth - 4) // 6
        self.normalize = Normalize()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.block1 = Stage(count, 16, 16 * width, 1)
        self.block2 = Stage(count, 16 * width, 32 * width, 2)
        self.block3 = Stage(count, 32 * width, 64 * width, 2)
        self.bn1 = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [B, K] of images [B, 3, H, W] in [0, 1]."""
        features = self.block1(self.conv1(self.normalize(images)))
        features = self.block3(self.block2(features))
        logits: Tensor = self.fc(functional.relu(self.bn1(features)).mean((2, 3)))
        return logits
