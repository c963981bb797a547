"""Augmentations, which make views of images: batched, with a draw of its own for every image."""

from collections.abc import Callable

from tapr.augment import ops
from tapr.augment.augmix import AugMix, AugMixParams
from tapr.augment.base import Augmentation, Identity, Views
from tapr.augment.crops import Chain, Crop, CropParams, ResizedCrop
from tapr.augment.katana import Katana, KatanaParams
from tapr.augment.moco import MoCo, MoCoParams
from tapr.augment.randaugment import RandAugment, RandAugmentParams
from tapr.registry import Registry

AUGMENTATIONS: Registry[Callable[..., Augmentation]] = Registry(
    "augmentation",
    {
        **{"augmix": AugMix, "crop": Crop, "identity": Identity, "katana": Katana},
        **{"moco": MoCo, "randaugment": RandAugment, "resized-crop": ResizedCrop},
    },
)

__all__ = [
    "AUGMENTATIONS",
    "AugMix",
    "AugMixParams",
    "Augmentation",
    "Chain",
    "Crop",
    "CropParams",
    "Identity",
    "Katana",
    "KatanaParams",
    "MoCo",
    "MoCoParams",
    "RandAugment",
    "RandAugmentParams",
    "ResizedCrop",
    "Views",
    "ops",
]
