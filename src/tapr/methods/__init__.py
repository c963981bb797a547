"""Methods, a file each, and the functions that make adapters of their names."""

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
