"""What the methods written out in plain PyTorch share."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tapr.augment import Augmentation


def close(ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, rtol=0.0, atol=1e-10)


class Darker(Augmentation):
    """Flips every image and takes a drawn share of its light: the same arithmetic for all."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        return torch.rand(shape[0], generator=generator, dtype=torch.float64)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        return images.flip(3) * (0.3 + 0.7 * params.view(-1, 1, 1, 1))
