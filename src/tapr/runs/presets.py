"""The protocols of the methods: every option with its published value."""

import math
from collections.abc import Mapping
from typing import Any

from tapr.errors import InputError

Options = Mapping[str, Any]

# How the machine does it: left out of recipes at these values. See docs/performance.md.
PLAIN: Options = {"layout": "kept", "compile": False, "amp": False, "budget": None}
SOURCE: Options = {"layout": PLAIN["layout"]}
STATISTICS: Options = {"statistics": "batch", "statistics_momentum": 0.1, "prior": 16.0}
NORM: Options = {**SOURCE, **STATISTICS}
GRADIENT: Options = {
    **PLAIN,
    **STATISTICS,
    "feed": "views",
    "optimizer": "sgd",
    "lr": 1e-4,
    "momentum": 0.9,  # of SGD; the first beta of Adam
    "weight_decay": 5e-4,
    "scope": "all",
    "steps": 5,
    "episodic": False,
    "predict": "after",
    "redraw": False,
    "entropy_weight": 1.0,
    "max_grad_norm": None,
}
TENT: Options = {
    **GRADIENT,
    "optimizer": "adam",
    "lr": 1e-3,
    "weight_decay": 0.0,
    "scope": "norm",
    "steps": 1,
    "predict": "before",
}
PEST: Options = {
    **GRADIENT,
    "statistics": "running",
    "augmentation": "augmix",
    "augmentation_preset": "paper",
    "augmentation_options": {},  # of that augmentation, e.g. {"severity": 3}
    "views": 2,
    "consistency": "jensen_shannon",
    "consistency_weight": 1.0,
}
RELEASED: Options = {"consistency": "summed_kl", "augmentation_preset": "released"}
# Option -> the least value it may have, and the one it must stay below.
RANGES: Mapping[str, tuple[float, float]] = {
    "lr": (0, math.inf),
    "momentum": (0, 1),
    "weight_decay": (0, math.inf),
    "consistency_weight": (0, math.inf),
    "entropy_weight": (0, math.inf),
}
# Option -> smallest whole number it may be.
COUNTS: Mapping[str, int] = {"steps": 1, "views": 0}
FLAGS = ("episodic", "redraw", "compile", "amp")


def check_values(options: Options) -> None:
    """Refuse values of the wrong kind or outside their range; the error names the option."""
    for name, (low, high) in RANGES.items():
        value = options.get(name, low)
        if not isinstance(value, int | float) or not low <= value < high:
            raise InputError(f"expected {name} of at least {low} and below {high}, got {value!r}")
    for name, least in COUNTS.items():
        value = options.get(name, least)
        if not isinstance(value, int) or value < least:
            raise InputError(
                f"expected {name} to be a whole number of at least {least}, got {value!r}"
            )
    for name in FLAGS:
        if not isinstance(options.get(name, False), bool):
            raise InputError(f"expected {name} to be True or False, got {options[name]!r}")
    if not isinstance(options.get("augmentation_options", {}), Mapping):
        raise InputError(
            f"expected augmentation_options as a mapping, got {options['augmentation_options']!r}"
        )
