"""Augmentations by name, with the presets of the paper and of its released code."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from tapr.augment import AUGMENTATIONS, Augmentation, AugMix, RandAugment
from tapr.errors import UnknownNameError
from tapr.registry import Registry, suggest

_RELEASED = {**AUGMENTATIONS, "augmix": AugMix.released, "randaugment": RandAugment.released}
PRESETS: Registry[Mapping[str, Callable[..., Augmentation]]] = Registry(
    "augmentation preset",
    {"paper": AUGMENTATIONS, "released": Registry(AUGMENTATIONS.kind, _RELEASED)},
)


def options(augmentation: str, preset: str = "paper") -> list[str]:
    """The options of an augmentation under a preset."""
    return list(signature(PRESETS[preset][augmentation]).parameters)


def make(
    augmentation: str | Augmentation, preset: str = "paper", given: Mapping[str, Any] = {}
) -> Augmentation:
    """An augmentation by name with some of its options; one of your own is taken as it is."""
    if not isinstance(augmentation, str) and hasattr(augmentation, "sample"):
        return augmentation
    made, known = PRESETS[preset][str(augmentation)], options(str(augmentation), preset)
    for name in given:
        if name not in known:
            raise UnknownNameError(
                f"unknown option {name!r} of augmentation {augmentation!r}; "
                + (suggest(name, known) if known else "this preset of it takes none")
            )
    return made(**given)
