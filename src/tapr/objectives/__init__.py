"""Objectives: the logits of an image's views in, a loss per image out; no labels anywhere."""

from tapr.objectives.base import Objective, Term
from tapr.objectives.consistency import (
    JensenShannon,
    SquaredError,
    SummedKL,
    jensen_shannon,
    squared_error,
)
from tapr.objectives.entropy import Entropy, entropy
from tapr.objectives.weighted import Weighted
from tapr.registry import Registry

CONSISTENCIES: Registry[type[Term]] = Registry(
    "consistency",
    {"jensen_shannon": JensenShannon, "summed_kl": SummedKL, "squared_error": SquaredError},
)

__all__ = [
    "CONSISTENCIES",
    "Entropy",
    "JensenShannon",
    "Objective",
    "SquaredError",
    "SummedKL",
    "Term",
    "Weighted",
    "entropy",
    "jensen_shannon",
    "squared_error",
]
