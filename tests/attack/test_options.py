"""Every option of every method with hostile values: taken and right, or refused by a sentence.

`TAPR_ATTACK=N`: 20 N pairs of options are drawn besides for every method. With N = 1 an option
meets every fourth value, otherwise all.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.attack.kinds import METHODS
from torch import nn

import tapr
from tapr.methods import augmentations
from tapr.testing import small_model

AREA = "options"
ATTACK = int(os.environ.get("TAPR_ATTACK", "1"))
PAIRS = 20 * ATTACK
IMAGES = torch.rand(3, 3, 10, 9, generator=torch.Generator().manual_seed(0))


class Liar:
    """Says yes to every question."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self

    def __bool__(self) -> bool:
        raise ValueError("neither")


HOSTILE: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "-1": -1,
    "0": 0,
    "1": 1,
    "2": 2,
    "1.5": 1.5,
    "-0.1": -0.1,
    "1e-320": 1e-320,
    "1e38": 1e38,
    "1e308": 1e308,
    "NaN": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "10 ** 400": 10**400,
    "a complex number": 1 + 2j,
    "no text": "",
    "a text": "rm -rf",
    "a text with a zero": "tent\0",
    "code": "os:system",
    "a long text": "x" * 10_000,
    "bytes": b"batch",
    "an empty list": [],
    "a list of None": [None],
    "a list of a list": [[]],
    "a list of numbers": [0.5, 0.5, 0.5],
    "a list of NaN": [float("nan")],
    "a tuple": (1, 2),
    "a set": {1},
    "a table": {"lr": 1},
    "an empty table": {},
    "an object": object(),
    "a class": nn.Linear,
    "a module": nn.ReLU(),
    "a function": lambda *arguments: None,
    "a function that fails": lambda *arguments: 1 / 0,
    "a function that says True": lambda *arguments: True,
    "a tensor": torch.tensor(0.5),
    "a tensor of NaN": torch.tensor(float("nan")),
    "two numbers in a tensor": torch.ones(2),
    "numpy's number": np.float32(0.5),
    "numpy's whole number": np.int64(1),
    "a generator": torch.Generator(),
    "a path": Path("state"),
    "a liar": Liar(),
}
COSTLY = {("compile", "True")}  # right, but it starts a compiler
COMMON = ("seed", "inplace")
# Option that all methods take from one place -> the method with which it is tried.
SHARED = dict.fromkeys(("seed", "inplace", "layout", "head", "votes", "compile", "amp"), "tent")
NAMED: dict[str, tuple[Any, ...]] = {
    "statistics": ("source", "batch", "running", "cumulative", "blend", "share", "window"),
    "scope": ("all", "norm", "backbone"),
    "optimizer": ("sgd", "adam"),
    "predict": ("before", "after"),
    "augmentation": ("augmix", "randaugment", "identity"),
    "augmentation_preset": ("paper", "released"),
    "consistency": ("jensen_shannon", "summed_kl", "squared_error"),
    "votes": ("original", "flip", "zoom", "original,flip", ["original", "zoom"], "flip+flip"),
    "feed": ("views", "untouched"),
    "layout": ("kept", "probe", "channels_last", "contiguous"),
    "head": ("7", "0", "nothing"),
    "augmentation_options": ({"severity": 3}, {"severity": "3"}, {"ops": []}, {"alpha": None}),
}


def options(method: str) -> list[str]:
    return [*tapr.presets(method)["paper"], *COMMON]


def tried(method: str, folder: Path, **given: Any) -> str | None:
    """What is wrong with an adapter with these options, if anything is."""
    adapter = tapr.adapt(small_model(), method, **given)
    for _ in range(2):
        logits = adapter(IMAGES)
        if logits.shape != (3, 5):
            return f"logits of shape {list(logits.shape)}"
        if not logits.isfinite().all():
            return "logits that are not finite"
    adapter.save(folder / "state")
    adapter.reset()
    return None


@pytest.mark.parametrize("method", [name for name in METHODS if name != "source"])
def test_a_hostile_value_is_never_a_raw_exception(
    method: str, tmp_path: Path, tally: Any, caplog: Any
) -> None:
    for option in options(method):
        if option in SHARED and method != SHARED[option]:
            continue
        for place, (name, value) in enumerate(HOSTILE.items()):
            turn = ATTACK > 1 or (place + len(option)) % 4 == 0
            if turn and (option, name) not in COSTLY:
                what = f"{method}, {option}={name}"
                given = {option: value}
                tally.attempt(AREA, what, lambda given=given: tried(method, tmp_path, **given))
    assert tally.sentences > tally.results > 0


@pytest.mark.parametrize("augmentation", ["augmix", "randaugment"])
def test_a_hostile_value_of_an_augmentation_is_never_a_raw_exception(
    augmentation: str, tmp_path: Path, tally: Any, caplog: Any
) -> None:
    for option in augmentations.options(augmentation):
        for name, value in HOSTILE.items():
            given = {"augmentation": augmentation, "augmentation_options": {option: value}}
            what = f"{augmentation}, {option}={name}"
            tally.attempt(AREA, what, lambda given=given: tried("pest", tmp_path, steps=1, **given))
    assert tally.sentences > tally.results > 0


@pytest.mark.parametrize("method", METHODS)
def test_drawn_pairs_of_options(method: str, tmp_path: Path, tally: Any, caplog: Any) -> None:
    random = np.random.default_rng([17, *method.encode()])
    known = options(method)
    for _ in range(PAIRS):
        given = {}
        for option in random.choice(known, 2, replace=False):
            values = list(NAMED.get(option, ())) * 8 + [
                value for name, value in HOSTILE.items() if (option, name) not in COSTLY
            ]
            given[str(option)] = values[random.integers(len(values))]
        tally.attempt(
            AREA, f"{method}, {given}", lambda given=given: tried(method, tmp_path, **given)
        )
    assert tally.sentences
