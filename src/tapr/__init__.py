"""tapr: test-time adaptation for PyTorch image classifiers.

Public names resolve lazily: `import tapr` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tapr import adapters, augment, corruptions, datasets, models, objectives, streams
    from tapr.adapters import Adapter
    from tapr.errors import TaprError
    from tapr.process import keep_memory
    from tapr.runs.catalogue import adapt, load, presets
    from tapr.runs.doctor import check
    from tapr.types import Prediction

_EXPORTS = {
    "Adapter": "tapr.adapters",
    "Prediction": "tapr.types",
    "TaprError": "tapr.errors",
    "adapt": "tapr.runs.catalogue",
    "check": "tapr.runs.doctor",
    "keep_memory": "tapr.process",
    "load": "tapr.runs.catalogue",
    "presets": "tapr.runs.catalogue",
}
_PACKAGES = {"adapters", "augment", "corruptions", "datasets", "models", "objectives", "streams"}

__all__ = [
    "Adapter",
    "Prediction",
    "TaprError",
    "adapt",
    "adapters",
    "augment",
    "check",
    "corruptions",
    "datasets",
    "keep_memory",
    "load",
    "models",
    "objectives",
    "presets",
    "streams",
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
