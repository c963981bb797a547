"""Bring your own augmentation: what may change in your images without changing their class.

Run it with `python examples/own_augmentation.py`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

import tapr
from tapr.augment import Augmentation


class PenWidth(Augmentation):
    """Strokes thinner or thicker by a pixel, and ink lighter or darker, for each image anew."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw for every image: thicker or not, and a factor for the ink."""
        thicker = torch.rand(shape[0], generator=generator) < 0.5
        ink = 0.7 + 0.6 * torch.rand(shape[0], generator=generator)
        return thicker, ink

    def transform(self, images: Tensor, params: tuple[Tensor, Tensor]) -> Tensor:
        """Apply what was drawn; the same draw gives the same images."""
        thicker, ink = (values.to(images.device).view(-1, 1, 1, 1) for values in params)
        wide = torch.nn.functional.max_pool2d(images, 3, stride=1, padding=1)
        thin = -torch.nn.functional.max_pool2d(-images, 3, stride=1, padding=1)
        return (torch.where(thicker, wide, thin) * ink).clamp(0, 1)


model = tapr.models.load("digits-small")
digits = tapr.datasets.load("digits")
assert digits.labels is not None
images = torch.from_numpy(digits.images[:200]).permute(0, 3, 1, 2).float() / 255
labels = torch.from_numpy(digits.labels[:200])

for augmentation in ("augmix", "randaugment", PenWidth()):
    adapter = tapr.adapt(model, "pest", augmentation=augmentation)
    guesses = torch.cat([adapter(batch) for batch in images.chunk(4)]).argmax(1)
    name = adapter.recipe["augmentation"]
    print(f"{name:14s} {(guesses == labels).float().mean():.1%} of {len(labels)} right")
