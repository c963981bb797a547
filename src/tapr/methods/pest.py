"""PEST: makes the predictions on an image and on two views of it agree, and confident."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from tapr.adapters import Learner
from tapr.adapters.checks import check_options
from tapr.augment import Augmentation, Views
from tapr.errors import InputError
from tapr.methods import augmentations
from tapr.objectives import CONSISTENCIES, Entropy, Weighted


class PEST(Learner):
    """Makes the predictions on an image and its views agree, and confident. Moves all parameters.

    Sivaprasad & Fleuret 2021. Five SGD steps a batch, on the image and two views, then a fresh
    forward: 16 forwards and 15 backwards an image.
    """

    title = "PEST"
    only_own = True
    paper = "Sivaprasad & Fleuret 2021"
    presets = {"released": {"consistency": "summed_kl", "augmentation_preset": "released"}}

    def __init__(
        self,
        model: nn.Module,
        *,
        augmentation: str | Augmentation = "augmix",
        augmentation_preset: str = "paper",
        augmentation_options: Mapping[str, Any] = {},  # of that augmentation: {"severity": 3}
        views: int = 2,
        consistency: str = "jensen_shannon",
        consistency_weight: float = 1.0,
        entropy_weight: float = 1.0,
        lr: float = 1e-4,
        weight_decay: float = 5e-4,
        steps: int = 5,
        statistics: str = "running",
        **common: Any,
    ) -> None:
        check_options({"views": views, "augmentation_options": augmentation_options})
        if consistency_weight and not views:
            raise InputError("expected views >= 1 for a consistency between views, got 0")
        made = augmentations.make(augmentation, augmentation_preset, augmentation_options)
        super().__init__(
            model,
            Weighted(
                [
                    (consistency_weight, CONSISTENCIES[consistency]()),
                    (entropy_weight, Entropy()),
                ]
            ),
            views=Views(made, views) if views else None,
            lr=lr,
            weight_decay=weight_decay,
            steps=steps,
            statistics=statistics,
            **common,
        )
