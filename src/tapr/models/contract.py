"""The contract between a model and its images: which normalisation, and who does it.

What a model's makers wrote down about its input is read as settings in timm's words, whoever wrote
it: timm's `pretrained_cfg`, an image processor of Hugging Face or its `preprocessor_config.json`,
the transforms of torchvision's weights.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from PIL import Image
from torch import nn

from tapr.errors import InputError
from tapr.models import inputs
from tapr.models.inputs import Channels
from tapr.registry import Registry

Given = Literal["pixels", "normalized"]
GIVEN: Registry[Given] = Registry(
    "kind of images", {"pixels": "pixels", "normalized": "normalized"}
)
OWN = "model"  # the settings that the model itself carries
PROCESSOR = "preprocessor_config.json"
_SMALL = 384  # from which size on ConvNeXt's processor squashes instead of cropping


class Contract(NamedTuple):
    """How images that a caller gives become what the model takes."""

    mean: Channels | None = None
    std: Channels | None = None
    images: Given = "pixels"  # what the caller gives: values in [0, 1], or normalised ones

    def table(self) -> dict[str, Any]:
        """What of it is not the default, for a recipe."""
        said: dict[str, Any] = {}
        if self.mean is not None and self.std is not None:
            said = {"mean": list(self.mean), "std": list(self.std)}
        return said if self.images == "pixels" else {**said, "images": self.images}


def agreed(
    model: nn.Module,
    mean: Any = None,
    std: Any = None,
    images: str = "pixels",
    preprocessing: object = None,
) -> Contract:
    """The normalisation that was asked for, or an error where two sources contradict each other."""
    given = inputs.normalisation({"mean": mean, "std": std})
    read: tuple[Any, Any] = (None, None)
    if preprocessing is not None:
        read = inputs.normalisation(own(model) if preprocessing == OWN else settings(preprocessing))
        if read[0] is None:
            raise InputError(
                "expected a preprocessing with mean and deviation (std), got"
                f" {'a model' if preprocessing == OWN else type(preprocessing).__name__} without"
            )
        if given[0] is not None and not _same(given, read):
            raise InputError(
                f"expected one normalisation, got mean {_told(given[0])} and deviation"
                f" {_told(given[1])}, and a preprocessing with {_told(read[0])} and"
                f" {_told(read[1])}; leave out one of them"
            )
    chosen = given if given[0] is not None else read
    inside = _inside(model)
    if inside is not None and chosen[0] is not None and not _same(chosen, inside):
        raise InputError(
            f"the model normalises its input itself, by mean {_told(inside[0])} and deviation"
            f" {_told(inside[1])}; expected no other, got {_told(chosen[0])} and {_told(chosen[1])}"
        )
    if GIVEN[images] == "normalized" and chosen[0] is None and inside is None:
        raise InputError(
            "images='normalized' needs the mean and std that they were normalised by: pass"
            " mean=..., std=..., or preprocessing=..."
        )
    return Contract(chosen[0], chosen[1], GIVEN[images])


def unused(model: nn.Module, contract: Contract) -> str:
    """A sentence about a config of the model that the contract contradicts or leaves out, or ""."""
    if _inside(model) is not None:
        return ""
    said = inputs.normalisation(own(model))
    if said[0] is None or (not any(said[0]) and set(said[1] or ()) == {1.0}):
        return ""
    words = f"the model's config says mean {_told(said[0])} and deviation {_told(said[1])}"
    if contract.mean is None:
        return (
            f"{words}, which is not applied: pass preprocessing='model', and images='normalized' if"
            " you normalise them yourself"
        )
    if _same((contract.mean, contract.std), said):
        return ""
    return f"{words}, you gave {_told(contract.mean)} and {_told(contract.std)}: yours are used"


def own(model: nn.Module) -> dict[str, Any]:
    """What the model itself says about its input and its classes; {} when it says nothing.

    A config inside a wrapper of yours leaves the normalisation to the wrapper.
    """
    for place, layer in model.named_modules():
        said = getattr(layer, "pretrained_cfg", None)
        if isinstance(said, Mapping):
            inner = bool(place) and inputs.find(model) is None
            return {k: v for k, v in said.items() if not (inner and k in ("mean", "std"))}
    config = getattr(model, "config", None)
    folder = Path(str(getattr(config, "name_or_path", "") or "-"))
    return {**labels(config), **(beside(folder) if folder.is_dir() else {})}


def settings(source: object) -> dict[str, Any]:
    """The settings, in timm's words, that another library's object or table holds.

    >>> settings({"image_mean": [0.5], "image_std": [0.2], "size": {"height": 8, "width": 9}})
    {'mean': [0.5], 'std': [0.2], 'input_size': (3, 8, 9), 'crop_mode': 'squash'}
    """
    if callable(getattr(source, "transforms", None)):  # weights of torchvision
        source = source.transforms()  # type: ignore[attr-defined]
    if hasattr(source, "resize_size") and hasattr(source, "crop_size"):
        return _of_torchvision(source)
    if not isinstance(source, Mapping) and callable(getattr(source, "to_dict", None)):
        source = source.to_dict()  # type: ignore[attr-defined]
    if not isinstance(source, Mapping):
        raise InputError(
            "expected a preprocessing as 'model', a table with mean and std, an image processor of"
            f" Hugging Face or torchvision's weights, got {type(source).__name__}"
        )
    return _of_hugging_face(source) if "image_mean" in source else dict(source)


def beside(folder: Path) -> dict[str, Any]:
    """The settings in the `preprocessor_config.json` of a folder, if it has one."""
    try:
        content = json.loads((folder / PROCESSOR).read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {folder / PROCESSOR}: {error}") from error
    return settings(content)


def labels(config: object) -> dict[str, Any]:
    """The names of the classes in a config of Hugging Face, unless they are placeholders."""
    names = getattr(config, "id2label", None)
    if not isinstance(names, Mapping) or set(names) != set(range(len(names))):
        return {}
    listed = [str(names[place]) for place in range(len(names))]
    placeholders = all(name == f"LABEL_{place}" for place, name in enumerate(listed))
    return {} if placeholders else {"label_names": listed}


def _of_torchvision(preset: Any) -> dict[str, Any]:
    crop, resized = _side(preset.crop_size), _side(preset.resize_size)
    return {
        "input_size": (3, crop, crop),
        "crop_pct": min(1.0, crop / resized),
        "interpolation": str(getattr(preset.interpolation, "value", preset.interpolation)),
        "mean": preset.mean,
        "std": preset.std,
    }


def _of_hugging_face(table: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if table.get("do_normalize", True):
        found = {"mean": table["image_mean"], "std": table["image_std"]}
    if isinstance(table.get("resample"), int):
        found["interpolation"] = Image.Resampling(table["resample"]).name.lower()
    size = table.get("size")
    size = size if isinstance(size, Mapping) else {"shortest_edge": size} if size else {}
    shortest, cropped = size.get("shortest_edge"), table.get("crop_size")
    if table.get("do_center_crop") and cropped:
        sides = cropped if isinstance(cropped, Mapping) else {"height": cropped, "width": cropped}
        found["input_size"] = (3, sides["height"], sides["width"])
        resized = shortest or size.get("height", sides["height"])
        found["crop_pct"] = min(1.0, sides["height"] / resized)
    elif "height" in size and "width" in size:
        found |= {"input_size": (3, size["height"], size["width"]), "crop_mode": "squash"}
    elif shortest:
        found["input_size"] = (3, shortest, shortest)
        if table.get("crop_pct") and shortest < _SMALL:
            found["crop_pct"] = table["crop_pct"]
        elif table.get("crop_pct"):
            found["crop_mode"] = "squash"
    return found


def _side(size: Any) -> int:
    return int(size if isinstance(size, int) else size[0])


def _inside(model: nn.Module) -> tuple[Channels, Channels] | None:
    """The normalisation that is a layer of the model."""
    layer = inputs.find(model)
    if layer is None:
        return None
    return tuple(layer.mean.flatten().tolist()), tuple(layer.std.flatten().tolist())


def _same(one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
    """Are the two normalisations equal, but for what float32 rounds?"""
    if [len(values) for values in one] != [len(values) for values in other]:
        return False
    pairs = zip((*one[0], *one[1]), (*other[0], *other[1]), strict=True)
    return all(abs(a - b) < 1e-6 for a, b in pairs)


def _told(values: Channels | None) -> str:
    return ", ".join(f"{value:.4g}" for value in values or ())
