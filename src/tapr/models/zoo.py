"""Trained models by name: the shipped ones, timm's, and files."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tapr.errors import ModelError, UnknownNameError
from tapr.models import checkpoint, foreign, head
from tapr.models.architectures import ROTATION, build
from tapr.models.foreign import HF, PACKAGED, TIMM
from tapr.registry import Registry, suggest

TURNS = "turns."  # where a model keeps its rotation head
INNER = "model."  # where a model of timm keeps its network, beside the normalisation
FILES = (".safetensors", ".pt", ".pth", ".ckpt", ".bin", ".tar")

SHIPPED: Registry[Path] = Registry(
    "model",
    {path.stem: path for path in sorted((Path(__file__).parent / "weights").glob("*.safetensors"))},
)


def load(
    name: str | Path, *, architecture: str | None = None, classes: int | None = None
) -> nn.Module:
    """Load a model by name, of others ("timm:NAME", "hf:NAME") or a file, for images in [0, 1].

    A foreign file needs `architecture`, e.g. "wrn-28-10" or "robustbench:Standard". The number of
    classes is read off the file; `classes` makes another number an error.

    >>> load("cifar10-small")(torch.rand(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    if foreign.is_foreign(str(name)):
        model = foreign.load(str(name), classes)
    else:
        model = _from_file(_path(name), architecture, classes)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on a CPU
    return model.eval()


def card(name: str | Path) -> dict[str, Any]:
    """How a shipped model, or the file of `tapr train`, was made and what it can do."""
    path = _path(name).with_suffix(".json")
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{name} has no readable card beside it: {path}: {reason}") from error
    if not isinstance(content, dict):
        raise ModelError(f"expected a card in {path}, got {type(content).__name__}")
    return content


def start_from(model: nn.Module, weights: str, architecture: str) -> None:
    """Load `weights` of another task, a file or "timm:NAME", into a fresh model of an architecture.

    The head stays as it is: its classes are others. So does a rotation head, which the weights may
    lack. The input normalisation comes along.
    """
    timm = weights.startswith(TIMM)
    plain = architecture.removesuffix(ROTATION)
    try:
        given = load(weights, architecture=None if timm else plain)
    except ModelError as error:
        if not timm:
            raise
        raise ModelError(f"{error}; or give a file you have with --weights PATH") from error
    own = (f"{head.find(model)}.", TURNS)
    state = {key.removeprefix(INNER): value for key, value in given.state_dict().items()}
    state = {key: value for key, value in state.items() if not key.startswith(own)}
    state |= {key: value for key, value in model.state_dict().items() if key.startswith(own)}
    checkpoint.fit(model, checkpoint.Checkpoint(state, None), f"{weights} as {architecture}")


def _path(name: str | Path) -> Path:
    path = Path(name)
    if str(name) in SHIPPED:
        return SHIPPED[str(name)]
    if path.exists() or path.suffix in FILES or len(path.parts) > 1:
        return path
    hint = suggest(str(name), [*SHIPPED, *PACKAGED, f"{TIMM}NAME", f"{HF}NAME", "FILE"])
    raise UnknownNameError(f"unknown model {str(name)!r}; {hint}")


def _from_file(path: Path, architecture: str | None, classes: int | None) -> nn.Module:
    saved = checkpoint.read(path)
    if saved.architecture and architecture and saved.architecture != architecture:
        raise ModelError(f"{path} is of architecture {saved.architecture}, not {architecture}")
    architecture = saved.architecture or architecture
    if architecture is None:
        raise ModelError(
            f"{path} does not say its architecture; expected architecture=..., "
            "e.g. 'wrn-28-10' or 'resnet-50'"
        )
    with torch.device("meta"):  # its shape alone
        name = head.find(build(architecture, 2))
    weight = saved.state.get(f"{name}.weight")
    found = len(weight) if weight is not None and weight.ndim else None
    if classes is not None and found is not None and classes != found:
        raise ModelError(f"expected {classes} classes, the head of {path} has {found}")
    model = build(architecture, found or classes or 2)
    checkpoint.fit(model, saved, f"{path} as {architecture}")
    return model
