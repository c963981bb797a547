"""tapr: test-time adaptation for PyTorch image classifiers.

Public names resolve lazily: `import tapr` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tapr import (
        adapters,
        augment,
        corruptions,
        datasets,
        methods,
        models,
        objectives,
        records,
        streams,
        testing,
    )
    from tapr.adapters import Adapter, Learner, Loop
    from tapr.errors import TaprError
    from tapr.methods import adapt, load, presets, recipe
    from tapr.process import keep_memory
    from tapr.runs.choose import choose
    from tapr.runs.doctor import check
    from tapr.types import Health, Loss, Outputs, Prediction

_EXPORTS = {
    "Adapter": "tapr.adapters",
    "Learner": "tapr.adapters",
    "Loop": "tapr.adapters",
    "Health": "tapr.types",
    "Loss": "tapr.types",
    "Outputs": "tapr.types",
    "Prediction": "tapr.types",
    "TaprError": "tapr.errors",
    "adapt": "tapr.methods",
    "check": "tapr.runs.doctor",
    "choose": "tapr.runs.choose",
    "keep_memory": "tapr.process",
    "load": "tapr.methods",
    "presets": "tapr.methods",
    "recipe": "tapr.methods",
}
_PACKAGES = {
    *("adapters", "augment", "corruptions", "datasets", "methods", "models", "objectives"),
    *("records", "streams", "testing"),
}

__all__ = [
    "Adapter",
    "Health",
    "Learner",
    "Loop",
    "Loss",
    "Outputs",
    "Prediction",
    "TaprError",
    "adapt",
    "adapters",
    "augment",
    "check",
    "choose",
    "corruptions",
    "datasets",
    "keep_memory",
    "load",
    "methods",
    "models",
    "objectives",
    "presets",
    "recipe",
    "records",
    "streams",
    "testing",
]


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"tapr.{name}")
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    from tapr.registry import suggest

    raise AttributeError(f"module 'tapr' has no attribute {name!r}; {suggest(name, __all__)}")


def __dir__() -> list[str]:
    return __all__
