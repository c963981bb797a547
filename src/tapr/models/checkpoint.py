"""Model files: ours are safetensors that name their architecture; foreign ones may be pickles."""

import pickle
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from tapr import files
from tapr.errors import ModelError

FORMAT = "tapr-model-1"
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")  # {"state_dict": {...}, "epoch": 3}
PREFIXES = ("module.", "model.")  # of DataParallel, and of models kept inside another
RENAMED = {"mu": "normalize.mean", "sigma": "normalize.std"}  # RobustBench's words for them
UNUSED = ("sub_block1.",)  # in some of RobustBench's WideResNets; its forward never calls it
OPTIONAL = ("normalize.mean", "normalize.std", "num_batches_tracked")  # foreign files may lack them
SHOWN = 8  # names of each kind in an error message


class Checkpoint(NamedTuple):
    """What a model file holds."""

    state: dict[str, Tensor]
    architecture: str | None  # None in a foreign file


def save(model: nn.Module, path: Path | str, architecture: str) -> None:
    """Write the weights with the name of their architecture.

    Matrices and kernels are stored as float16; batch-norm values and biases, which are few and
    whose range is open, as they are.
    """
    state = {key: _stored(value) for key, value in model.state_dict().items()}
    with files.atomic(path) as part:
        part.write_bytes(to_bytes(state, {"format": FORMAT, "architecture": architecture}))


def read(path: Path | str) -> Checkpoint:
    """Read a model file without running anything in it; foreign names become ours."""
    path = Path(path)
    if not path.is_file():
        made = "" if path.exists() else f"; `tapr train DATA --out {path.parent}` would make it"
        raise ModelError(
            f"expected a model file, but {path} is not one"
            + (made if path.name == "model.safetensors" else "")
        )
    if path.suffix != ".safetensors":
        return Checkpoint(_translated(_unwrapped(_unpickled(path), path)), None)
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            state = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path} is truncated or not a safetensors file: {error}") from error
    if header.get("format") == FORMAT:
        return Checkpoint(state, header.get("architecture"))
    return Checkpoint(_translated(state), None)


def fit(model: nn.Module, checkpoint: Checkpoint, what: str) -> None:
    """Load every tensor into its place, or raise an error that names each that has none."""
    own = model.state_dict()
    state = dict(checkpoint.state)
    if checkpoint.architecture is None:
        state = {key: own[key] for key in own if key.endswith(OPTIONAL)} | state
    missing, surplus = own.keys() - state.keys(), state.keys() - own.keys()
    shapes = [
        f"{key} is {list(state[key].shape)}, expected {list(own[key].shape)}"
        for key in own.keys() & state.keys()
        if state[key].numel() != own[key].numel()
        or state[key].squeeze().shape != own[key].squeeze().shape
    ]
    kinds = [
        f"{key} is {state[key].dtype}, expected {own[key].dtype}"
        for key in own.keys() & state.keys()
        if own[key].is_floating_point() and not state[key].is_floating_point()
    ]
    if missing or surplus or shapes or kinds:
        problems = [
            _listed("missing", (_with_nearest(key, surplus) for key in sorted(missing))),
            _listed("surplus", sorted(surplus)),
            _listed("of another shape", sorted(shapes)),
            _listed("of another kind", sorted(kinds)),
        ]
        raise ModelError(f"{what} does not fit: " + "; ".join(filter(None, problems)))
    model.load_state_dict({key: state[key].reshape(own[key].shape) for key in own}, strict=True)


def _stored(value: Tensor) -> Tensor:
    half = value.is_floating_point() and value.shape.numel() > max(value.shape, default=0)
    return value.detach().to("cpu", torch.float16 if half else value.dtype).contiguous()


def _unpickled(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch warns of is refused below, or harmless
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ModelError(
            f"{path} is refused: it is truncated, or a pickle that would run code; "
            "expected tensors only (a state dict, or safetensors)"
        ) from error
    except Exception as error:  # a damaged file raises whatever its reader stumbles over
        raise ModelError(f"{path} is truncated or not a checkpoint: {error}") from error


def _unwrapped(content: object, path: Path) -> dict[str, Tensor]:
    for key in WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not content:
        raise ModelError(f"expected a state dict in {path}, got {type(content).__name__}")
    for key, value in content.items():
        if not isinstance(key, str):
            raise ModelError(f"expected names with tensors in {path}, but {key!r} is no name")
        if not isinstance(value, Tensor):
            raise ModelError(f"expected names with tensors in {path}, but {key!r} has none")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise ModelError(f"{key} in {path} is sparse, quantized or empty; expected its values")
    return dict(content)


def _translated(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    translated = {}
    for key, value in state.items():
        for prefix in PREFIXES:
            key = key.removeprefix(prefix)
        if not key.startswith(UNUSED):
            translated[RENAMED.get(key, key)] = value
    return translated


def _with_nearest(key: str, names: Iterable[str]) -> str:
    near = get_close_matches(key, names, n=1)
    return f"{key} (nearest: {near[0]})" if near else key


def _listed(kind: str, names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} {kind}: {', '.join(names[:SHOWN])}{more}" if names else ""
