"""Training augmentations and their losses: none, crop and flip, and AugMix after these."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.augment import AugMix, Views
from tapr.objectives import jensen_shannon
from tapr.registry import Registry

# (model, uint8 images [B, H, W, C], labels, label smoothing, generator) -> loss, logits [B, K]
Augment = Callable[[nn.Module, Tensor, Tensor, float, torch.Generator], tuple[Tensor, Tensor]]
PADDING = 8  # a crop moves an image by up to an eighth of its side, as 4 pixels of 32
AUGMIX = Views(AugMix(severity=3, width=3, ops="released"), count=2)  # Hendrycks et al. 2020
AGREEMENT = 12.0  # their weight of the Jensen-Shannon divergence


def none(
    model: nn.Module, images: Tensor, labels: Tensor, smoothing: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Cross-entropy on the images as they are, and the logits."""
    logits = model(images.permute(0, 3, 1, 2).float() / 255)
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing), logits


def crop_flip(
    model: nn.Module, images: Tensor, labels: Tensor, smoothing: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Cross-entropy on cropped and mirrored images, and the logits."""
    logits = model(cropped_and_flipped(images, generator))
    return functional.cross_entropy(logits, labels, label_smoothing=smoothing), logits


def augmix(
    model: nn.Module, images: Tensor, labels: Tensor, smoothing: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Cross-entropy on the cropped images, and agreement with two AugMix views of each."""
    views = AUGMIX(cropped_and_flipped(images, generator), generator)
    view_logits = model(views).unflatten(0, (1 + AUGMIX.count, len(images)))  # [V, B, K]
    loss = functional.cross_entropy(view_logits[0], labels, label_smoothing=smoothing)
    return loss + AGREEMENT * jensen_shannon(view_logits).mean(), view_logits[0]


def cropped_and_flipped(images: Tensor, generator: torch.Generator) -> Tensor:
    """Shift each image [B, H, W, C] within a black border, mirror half; [B, C, H, W] in [0, 1]."""
    count, height, width, _ = images.shape
    down, right = height // PADDING, width // PADDING
    padded = functional.pad(images, (0, 0, right, right, down, down))
    rows = torch.randint(2 * down + 1, (count, 1), generator=generator) + torch.arange(height)
    columns = torch.randint(2 * right + 1, (count, 1), generator=generator) + torch.arange(width)
    mirror = torch.rand(count, 1, generator=generator) < 0.5
    columns = torch.where(mirror, columns.flip(1), columns)
    batch = torch.arange(count)[:, None, None]
    where = (batch, rows[:, :, None], columns[:, None, :])
    moved = padded[tuple(index.to(images.device) for index in where)]
    return moved.permute(0, 3, 1, 2).float() / 255  # channels last in memory


AUGMENTS: Registry[Augment] = Registry(
    "training augmentation", {"none": none, "crop-flip": crop_flip, "augmix": augmix}
)
