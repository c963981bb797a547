"""Damaged and forged states: refused by a sentence, and the adapter is bit for bit what it was.

`TAPR_ATTACK=N`: 30 N files are fuzzed for every method.
"""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.attack.kinds import METHODS
from torch import Tensor

import tapr
from tapr.errors import StateError
from tapr.models import state
from tapr.testing import small_model

AREA = "damaged and forged states"
FILES = 30 * int(os.environ.get("TAPR_ATTACK", "1"))
IMAGES = torch.rand(4, 3, 10, 9, generator=torch.Generator().manual_seed(0))
LEARN = ("tent", "pest")


def resized(name: str, shape: tuple[int, ...]) -> Callable[[Any, Any], None]:
    def forge(tensors: dict[str, Tensor], metadata: Any) -> None:
        tensors[name] = torch.zeros(shape, dtype=tensors[name].dtype)

    return forge


def filled(name: str, value: float) -> Callable[[Any, Any], None]:
    return lambda tensors, metadata: tensors[name].view(-1)[-1].fill_(value)


def removed(name: str) -> Callable[[Any, Any], None]:
    return lambda tensors, metadata: tensors.pop(name)


def added(name: str, value: Any = None) -> Callable[[Any, Any], None]:
    def forge(tensors: dict[str, Tensor], metadata: Any) -> None:
        tensors[name] = torch.zeros(3) if value is None else value

    return forge


def converted(name: str, kind: torch.dtype) -> Callable[[Any, Any], None]:
    def forge(tensors: dict[str, Tensor], metadata: Any) -> None:
        tensors[name] = tensors[name].to(kind)

    return forge


def said(**changes: Any) -> Callable[[Any, Any], None]:
    return lambda tensors, metadata: metadata.update(changes)


def unsaid(key: str) -> Callable[[Any, Any], None]:
    return lambda tensors, metadata: metadata.pop(key)


MEAN, WEIGHT, HEAD = "model.1.running_mean", "model.1.weight", "model.7.weight"
# Forgeries that every method refuses, or only those that learn.
FORGED: dict[str, Callable[[Any, Any], Any]] = {
    "a mean of one value": resized(MEAN, (1,)),
    "a mean without values": resized(MEAN, (0,)),
    "a mean that is a number": resized(MEAN, ()),
    "a mean of seven": resized(MEAN, (7,)),
    "a mean of two axes": resized(MEAN, (6, 1)),
    "NaN in a mean": filled(MEAN, float("nan")),
    "infinity in a variance": filled("model.1.running_var", float("inf")),
    "a mean of doubles": converted(MEAN, torch.float64),
    "a mean of whole numbers": converted(MEAN, torch.int32),
    "no mean": removed(MEAN),
    "no generator": removed("generator"),
    "no count of refusals": removed("guard.refusals"),
    "a count of refusals that is a list": resized("guard.refusals", (2,)),
    "a short generator": resized("generator", (7,)),
    "a generator of zeros": resized("generator", (5056,)),
    "a generator of floats": converted("generator", torch.float32),
    "a tensor for nobody": added("model.99.weight"),
    "a tensor for the frozen": added("model.0.nothing.weight"),
    "a tensor without a name": added(""),
    "a name of dots": added("..."),
    "a method as a buffer": added("model.forward"),
    "a hook as a buffer": added("model._forward_hooks"),
    "another source": said(source="0" * 64),
    "no source": unsaid("source"),
    "a source that is a list": said(source=[]),
    "numbers in a list": said(numbers=[1]),
    "numbers that are texts": said(numbers={"optimizer.0.lr": "1"}),
    "numbers for nobody": said(numbers={"optimizer.9.lr": 1.0}),
    "a number for a buffer": said(numbers={MEAN: 1.0}),
    "an unknown layout": said(layout="sideways"),
    "a layout that is a list": said(layout=["kept"]),
    "changed buffers as a text": said(changed="model"),
    "changed buffers as numbers": said(changed=[1]),
    "an empty buffer for nobody": said(empty=["model.9.x"]),
    "a parameter as an empty buffer": said(empty=[HEAD]),
    "a mean said to be empty": lambda tensors, metadata: (
        metadata.update(empty=[MEAN]),
        tensors.pop(MEAN),
    ),
}
LEARNT: dict[str, Callable[[Any, Any], Any]] = {
    "no weight": removed(WEIGHT),
    "a weight of one value": resized(WEIGHT, (1,)),
    "NaN in a weight": filled(WEIGHT, float("nan")),
    "infinity in a weight": filled(WEIGHT, float("-inf")),
    "a weight of half": converted(WEIGHT, torch.float16),
    "a weight said to have changed": lambda tensors, metadata: (
        metadata.update(changed=[WEIGHT]),
        resized(WEIGHT, (1,))(tensors, metadata),
    ),
    "a memory for a generator": added("optimizer.generator.x"),
    "a memory for nobody": added("optimizer.model.99.weight.momentum_buffer"),
    "a memory of a group": added("optimizer.0.lr"),
    "a memory without a name": added("optimizer."),
    "a memory of one value": added("optimizer.model.1.weight.exp_avg", torch.zeros(1)),
    "a momentum of one value": added("optimizer.model.1.weight.momentum_buffer", torch.zeros(1)),
    "NaN in a memory": added("optimizer.model.1.weight.exp_avg", torch.full([6], torch.nan)),
    "a learning rate below 0": said(numbers={"optimizer.0.lr": -1.0}),
    "an infinite learning rate": said(numbers={"optimizer.0.lr": float("inf")}),
    "a learning rate of NaN": said(numbers={"optimizer.0.lr": float("nan")}),
    "an enormous learning rate": said(numbers={"optimizer.0.lr": 10**300}),
    "a learning rate that is true": said(numbers={"optimizer.0.lr": True}),
    "a momentum above 1": said(numbers={"optimizer.0.momentum": 5.0}),
}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def file(method: str, tmp_path: Path) -> Path:
    adapter = tapr.adapt(small_model(), method)
    adapter(IMAGES)
    adapter.save(tmp_path / "state")
    return tmp_path / "state"


@pytest.fixture
def adapter(method: str) -> tapr.Adapter:
    made = tapr.adapt(small_model(), method)
    made(IMAGES / 2)
    return made


def refused(area: str, what: str, adapter: tapr.Adapter, file: Path, tally: Any) -> None:
    """Load a bad file: by the adapter, and into a new one."""
    before = adapter.capture()

    def load(loading: Callable[[], object]) -> str:
        try:
            loading()
        except StateError:
            raise
        except tapr.TaprError as error:
            return f"{type(error).__name__} instead of StateError: {error}"
        return "it was loaded"

    tally.attempt(area, f"{what}, adapter.load", lambda: load(lambda: adapter.load(file)))
    tally.unchanged(area, what, adapter, before)


def test_a_forged_state_never_moves_a_bit(
    method: str, adapter: tapr.Adapter, file: Path, tally: Any
) -> None:
    tensors, metadata = state.read(file)
    forgeries = {**FORGED, **(LEARNT if method in LEARN else {})}
    for name, forge in forgeries.items():
        copies, words = {n: t.clone() for n, t in tensors.items()}, json.loads(json.dumps(metadata))
        forge(copies, words)
        state.write(file, copies, words)
        refused(AREA, f"{method}, {name}", adapter, file, tally)
    assert tally.sentences == len(forgeries)
    state.write(file, tensors, metadata)
    adapter.load(file)  # untouched, it still loads
    whole = tapr.load(file, small_model())
    assert torch.equal(adapter(IMAGES), whole(IMAGES))


@pytest.mark.parametrize("text", ["[]", "null", "3", '"text"', "{", "", "[" * 100_000, "NaN"])
def test_metadata_of_another_kind_is_a_sentence(
    text: str, adapter: tapr.Adapter, file: Path, tally: Any
) -> None:
    tensors, _ = state.read(file)
    save_file(tensors, file, {"format": state.FORMAT, "tapr": text})
    refused(AREA, f"metadata {text[:9]!r}", adapter, file, tally)
    tally.attempt(AREA, "tapr.load", lambda: f"loaded {tapr.load(file, small_model())}")
    assert tally.sentences == 2


RECIPES: dict[str, Any] = {
    "in place": {"inplace": True},
    "too many steps": {"method": "pest", "steps": 10**9},
    "steps just above what is allowed": {"method": "pest", "steps": 101},
    "steps as a text": {"method": "pest", "steps": "many"},
    "code as a method": {"method": "os:system"},
    "a path as a method": {"method": "/bin/sh"},
    "an unknown method": {"method": "tnet"},
    "a method that is a list": {"method": ["tent"]},
    "an augmentation of one's own": {"method": "pest", "augmentation": "own:Evil"},
    "an unknown option": {"method": "tent", "rm": "-rf"},
    "a model": {"method": "tent", "model": "evil:model"},
    "a seed below 0": {"method": "tent", "seed": -1},
    "a seed that is a text": {"method": "tent", "seed": "now"},
    "an unknown preset": {"method": "tent", "preset": "evil"},
    "views without end": {"method": "pest", "views": 10**9},
    "a chain without end": {"method": "pest", "augmentation_options": {"depth": 10**9}},
    "an option with dots": {"method": "pest", "augmentation_options": {"__class__": 1}},
    "no method": {"method": None},
}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_of_a_file_never_decides_what_runs(name: str, tmp_path: Path, tally: Any) -> None:
    model, asked = small_model(), RECIPES[name]
    method = asked.get("method")
    adapter = tapr.adapt(model, method if method in ("tent", "pest") else "norm")
    adapter(IMAGES)
    adapter.save(tmp_path / "state")
    tensors, metadata = state.read(tmp_path / "state")
    assert isinstance(metadata["recipe"], dict)
    metadata["recipe"] |= asked
    state.write(tmp_path / "state", tensors, metadata)
    weights = {key: value.clone() for key, value in model.state_dict().items()}

    tally.attempt(AREA, name, lambda: f"loaded {tapr.load(tmp_path / 'state', model)}")
    assert tally.sentences == 1
    assert all(torch.equal(value, model.state_dict()[key]) for key, value in weights.items())


def classes_of_places(data: bytes) -> list[int]:
    """Sizes at which to cut: in the length, the header, and the tensors, and at their borders."""
    header = struct.unpack("<Q", data[:8])[0]
    edges = [0, 1, 7, 8, 9, 8 + header - 1, 8 + header, 8 + header + 1, len(data) - 1]
    inside = np.random.default_rng(5).integers(0, len(data), 40).tolist()
    return sorted({*edges, *inside, 8 + header // 2})


def test_a_state_that_was_cut_off_is_a_sentence(
    adapter: tapr.Adapter, file: Path, tally: Any
) -> None:
    whole = file.read_bytes()
    places = classes_of_places(whole)
    for size in places:
        file.write_bytes(whole[:size])
        refused(AREA, f"cut at {size}", adapter, file, tally)
    assert tally.sentences == len(places)


def test_a_fuzzed_header_is_a_sentence_or_a_state(
    method: str, adapter: tapr.Adapter, file: Path, tally: Any
) -> None:
    """What a fuzzed file may be is a whole state with other numbers: then it is loaded whole."""
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    length = 8 + int(whole[:8].view(np.uint64)[0])
    random = np.random.default_rng([13, *method.encode()])
    for number in range(FILES):
        data = whole.copy()
        reach = (8, length, length, len(data))[number % 4]
        places = random.integers(0, reach, random.integers(1, 5))
        data[places] = random.integers(0, 256, len(places))
        file.write_bytes(data.tobytes())
        before = adapter.capture()
        what = f"{method}, file {number}"

        def load() -> str | None:
            loaded = adapter.load(file).capture()
            finite = all(t.float().isfinite().all() for t in loaded.tensors.values())
            return None if finite else "loaded what is not finite"

        if tally.attempt(AREA, what, load) is None:
            adapter.put_back(before)
            continue
        tally.unchanged(AREA, what, adapter, before)
    assert tally.sentences > FILES // 2


@pytest.mark.parametrize("path", [None, 5, b"state", "", "no/such/file", "\0", "."])
def test_a_path_that_is_none_is_a_sentence(path: Any, tally: Any) -> None:
    adapter = tapr.adapt(small_model(), "tent")
    tally.attempt(AREA, f"{path!r}", lambda: f"loaded {adapter.load(path)}")
    tally.attempt(AREA, f"{path!r}", lambda: f"loaded {tapr.load(path, small_model())}")
    assert tally.sentences == 2
