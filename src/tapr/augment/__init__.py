"""Augmentations, which make views of images: batched, with a draw of its own for every image."""

from collections.abc import Callable

from tapr.augment import ops
from tapr.augment.augmix import AugMix, AugMixParams
from tapr.augment.base import Augmentation, Identity, Views
from tapr.augment.katana import Katana, KatanaParams
from tapr.augment.randaugment import RandAugment, RandAugmentParams
from tapr.registry import Registry

AUGMENTATIONS: Registry[Callable[..., Augmentation]] = Registry(
    "augmentation",
    {"augmix": AugMix, "identity": Identity, "katana": Katana, "randaugment": RandAugment},
)

__all__ = [
    "AUGMENTATIONS",
    "AugMix",
    "AugMixParams",
    "Augmentation",
    "Identity",
    "Katana",
    "KatanaParams",
    "RandAugment",
    "RandAugmentParams",
    "Views",
    "ops",
]
