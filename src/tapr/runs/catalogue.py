"""Until all call `tapr.methods` themselves."""

from tapr import names
from tapr.methods.augmentations import PRESETS as AUGMENTATION_PRESETS
from tapr.methods.table import adapt, find_model, load, presets, recipe

METHODS = names.METHODS

__all__ = ["AUGMENTATION_PRESETS", "METHODS", "adapt", "find_model", "load", "presets", "recipe"]
