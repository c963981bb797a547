"""How each data set's source model is trained when nothing else is asked for."""

from collections.abc import Mapping
from typing import Any

from tapr.runs.train import Recipe

RECIPES: Mapping[str, Mapping[str, Any]] = {
    # A mirrored digit is another sign, and the renderer has moved and turned the images already.
    "digits": {"architecture": "small-narrow", "epochs": 10, "augment": "none"},
    "visda": {
        "architecture": "resnet-50",
        "weights": "timm:resnet50",
        "epochs": 10,
        "batch_size": 64,
        "learning_rate": 0.002,
    },
}


def recipe(dataset: str, **given: Any) -> Recipe:
    """The data set's own recipe, with what is given in place of its values.

    >>> recipe("digits", epochs=3).architecture
    'small-narrow'
    """
    usual = dict(RECIPES.get(dataset, {}))
    if given.get("architecture", usual.get("architecture")) != usual.get("architecture"):
        usual.pop("weights", None)  # they fit no other network
    return Recipe(dataset, **{**usual, **given})
