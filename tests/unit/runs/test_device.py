"""A device that cannot be used gets a sentence, wherever one is named."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tapr.errors import InputError
from tapr.runs import spec
from tapr.runs.adapting import Adapting, Request
from tapr.runs.bench import Bench
from tapr.runs.device import sent, usable

SENTENCE = "cannot use the device 'abacus': "


def test_a_device_nobody_has() -> None:
    with pytest.raises(InputError, match=SENTENCE):
        usable("abacus")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_is_the_best_there_is(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    asked: list[Any] = []

    def empty(_: int, device: object) -> torch.Tensor:
        asked.append(device)
        return torch.zeros(0)

    monkeypatch.setattr(torch, "empty", empty)
    usable("auto")
    assert asked == [expected]


def test_the_device_found_is_the_one_recorded(tmp_path: Path) -> None:
    bench = Bench(spec.load("digits", {"device": "auto", "images": 4}), tmp_path)
    named = Bench(spec.load("digits", {"device": bench.device, "images": 4}), tmp_path)
    assert bench.cells[0].file == named.cells[0].file


def test_batches_go_to_a_gpu_by_pinned_memory_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    did: list[Any] = []

    def pinned(tensor: torch.Tensor) -> torch.Tensor:
        did.append("pinned")
        return tensor

    def to(tensor: torch.Tensor, *arguments: object, **options: object) -> torch.Tensor:
        did.append((arguments, options))
        return tensor

    monkeypatch.setattr(torch.Tensor, "pin_memory", pinned)
    monkeypatch.setattr(torch.Tensor, "to", to)
    sent(torch.zeros(1), "cuda:1")
    sent(torch.zeros(1), "cpu")
    assert did == ["pinned", (("cuda:1",), {"non_blocking": True}), (("cpu",), {})]


def test_in_a_benchmark(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=SENTENCE):
        Bench(spec.load("digits", {"device": "abacus"}), tmp_path)


def test_on_your_own_images(tmp_path: Path) -> None:
    request = Request(str(tmp_path), "digits-small", tmp_path / "out.csv", device="abacus")
    with pytest.raises(InputError, match=SENTENCE):
        Adapting(request)
