"""Images to views: a draw of its own for every image, batched, on any device."""

from collections.abc import Callable

from tapr.augment.base import Augmentation, Identity
from tapr.augment.views import Views
from tapr.registry import Registry

AUGMENTATIONS: Registry[Callable[..., Augmentation]] = Registry(
    "augmentation", {"identity": Identity}
)

__all__ = ["AUGMENTATIONS", "Augmentation", "Identity", "Views"]
