"""Compiled and in mixed precision: the same method, to the precision promised."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import running

CASES: dict[str, dict[str, Any]] = {
    "tent": {"method": "tent"},
    "pest": {},
    "control": {"lr": 0.0, "statistics": "blend"},
    "untouched": {"feed": "untouched"},
}


@pytest.fixture
def stream() -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(size, 3, 10, 9, generator=generator) for size in (8, 8, 5)]


def effective(**options: Any) -> dict[str, Any]:
    if options.get("method") == "tent":
        return options
    return {"method": "pest", "lr": 0.01, "steps": 2, **options}


@pytest.fixture
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the compiler but its last part, which makes machine code and takes its time."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
def test_compiled_forwards_follow_modes_and_hooks(
    model: nn.Module, stream: list[Tensor], tmp_path: Path
) -> None:
    """All in one process: none may get what was compiled for another."""
    for name in ("pest", "control", "untouched"):
        options = effective(**CASES[name])
        plain, compiled = (
            tapr.adapt(model, **options),
            tapr.adapt(model, compile=True, **options),
        )
        first = [compiled(batch) for batch in stream]
        assert all(torch.equal(plain(b), own) for b, own in zip(stream, first, strict=True))
        assert "forward" not in vars(compiled.model)
        compiled.reset()
        assert torch.equal(compiled(stream[0]), first[0])
    compiled.save(tmp_path / "state")
    other = tapr.load(tmp_path / "state", model)
    assert other.recipe["compile"] is True
    assert torch.equal(other(stream[1]), compiled(stream[1]))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler about itself
def test_compiled_to_machine_code() -> None:
    layers = nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, 3)  # little to compile
    model, images = nn.Sequential(*layers).eval(), torch.linspace(0, 1, 96).view(8, 3, 2, 2)
    compiled, plain = tapr.adapt(model, "tent", compile=True), tapr.adapt(model, "tent")
    for _ in range(2):
        torch.testing.assert_close(compiled(images), plain(images))


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CASES)
def test_mixed_precision_is_close_and_its_loss_is_float32(
    model: nn.Module,
    stream: list[Tensor],
    name: str,
    kind: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running, "half", lambda device: kind)
    options = effective(**CASES[name])
    plain, mixed = (
        tapr.adapt(model, **options),
        tapr.adapt(model, amp=True, **options),
    )
    used: set[torch.dtype] = set()
    judged: set[torch.dtype] = set()
    inner: Any = mixed
    inner.model[0].register_forward_hook(lambda m, i, output: used.add(output.dtype))
    inner.objective.register_forward_hook(lambda m, i, loss: judged.add(loss.per_image.dtype))
    for batch in stream:
        logits = mixed(batch)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, plain(batch), rtol=0.1, atol=0.3)
    assert (used, judged) == ({kind}, {torch.float32})
    assert {p.dtype for p in mixed.model.parameters()} == {torch.float32}
    assert mixed.refused == 0


def test_small_gradients_survive_in_float16(
    model: nn.Module, stream: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is scaled up for the backward, and the scale is gone when the step is taken."""
    monkeypatch.setattr(running, "half", lambda device: torch.float16)
    options: dict[str, Any] = {"steps": 1, "entropy_weight": 1e-4, "consistency_weight": 0.0}
    options |= {"method": "pest", "lr": 1e3, "weight_decay": 0.0, "momentum": 0.0}
    plain, mixed = (
        tapr.adapt(model, **options),
        tapr.adapt(model, amp=True, **options),
    )
    plain(stream[0]), mixed(stream[0])
    source = list(model.parameters())
    for start, a, b in zip(source, plain.model.parameters(), mixed.model.parameters(), strict=True):
        moved, close = (a - start).norm(), (a - b).norm()
        assert close <= 0.1 * moved + 1e-4
