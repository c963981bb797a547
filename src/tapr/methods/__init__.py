"""The methods, one file each, and the functions that make adapters from their names."""

from tapr.methods.own import known
from tapr.methods.table import (
    About,
    about,
    adapt,
    find_model,
    load,
    parse,
    presets,
    recipe,
    value,
)

__all__ = [
    "About",
    "about",
    "adapt",
    "find_model",
    "known",
    "load",
    "parse",
    "presets",
    "recipe",
    "value",
]
