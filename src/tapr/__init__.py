"""tapr: test-time adaptation for PyTorch image classifiers.

Public names resolve lazily: `import tapr` does not import torch.
"""

from importlib import import_module

_EXPORTS = {
    "Adapter": "tapr.adapters",
    "Prediction": "tapr.types",
    "TaprError": "tapr.errors",
    "adapt": "tapr.runs.catalogue",
    "check": "tapr.runs.doctor",
    "load": "tapr.runs.catalogue",
    "presets": "tapr.runs.catalogue",
}
_PACKAGES = {"adapters", "augment", "corruptions", "datasets", "models", "objectives", "streams"}

__all__ = sorted([*_EXPORTS, *_PACKAGES])


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return import_module(f"tapr.{name}")
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    from tapr.registry import suggest

    raise AttributeError(f"module 'tapr' has no attribute {name!r}; {suggest(name, __all__)}")


def __dir__() -> list[str]:
    return __all__
