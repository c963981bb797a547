"""One rule for state: whatever lies below the adapter is reset, saved and loaded."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import Adapter
from tapr.testing import check_method


class Masking(nn.Module):
    """A layer with buffers of every kind: declared, lazily shaped, created in the first forward."""

    seen: Tensor
    table: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0))
        self.register_buffer("table", None)

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.zeros(x.shape[1:]))
        if self.table is None:
            self.table = x.new_zeros(x.shape[1])
        if not len(self.seen):
            self.seen = x.new_zeros(x.shape[1])
        self.seen = self.seen + x.detach().mean(0)
        self.table = self.table + 1
        mask: Any = self.mask
        shifted: Tensor = x + 0.01 * self.seen + mask + 0.001 * self.table
        return shifted


def masking(model: nn.Module) -> nn.Sequential:
    return nn.Sequential(deepcopy(model), Masking())


@pytest.mark.parametrize("method", ["source", "norm", "tent", "pest"])
def test_buffers_that_appear_in_a_forward_are_state(method: str, model: nn.Module) -> None:
    def make(given: nn.Module, **common: Any) -> Adapter:
        return tapr.adapt(given, method, **common)

    check_method(make, model=masking(model))


def test_reset_removes_what_has_appeared_and_empties_what_was_empty(
    model: nn.Module, images: Tensor
) -> None:
    adapter = tapr.adapt(masking(model), "tent", episodic=True)
    names = set(adapter.live())
    adapter(images)
    assert set(adapter.live()) - names >= {"model.1.mask", "model.1.table"}
    adapter.reset()
    assert set(adapter.live()) == names
    assert adapter.model[1].table is None  # type: ignore[index]
    assert adapter.live()["model.1.seen"].shape == (0,)


class Kept(tapr.Learner):
    """Parts of every kind: a frozen submodule, a trained one, an optimiser and a generator."""

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, **common)
        self.anchor = deepcopy(model).requires_grad_(False)
        self.projector = nn.utils.skip_init(nn.Linear, 5, 5)  # type: ignore[no-untyped-call]
        nn.init.eye_(self.projector.weight)
        nn.init.zeros_(self.projector.bias)
        self.own_draws = torch.Generator().manual_seed(5)

    def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
        with torch.no_grad():
            for parameter in self.anchor.parameters():
                parameter.mul_(0.99)
        noise = torch.rand(5, generator=self.own_draws)
        value = (self.projector(outputs.logits[0]) - noise).square().sum(1)
        return tapr.Loss.mean(value)


def test_whatever_lies_below_the_adapter_is_state(images: Tensor, model: nn.Module) -> None:
    check_method(Kept)
    adapter = Kept(model)
    assert {"anchor.0.weight", "projector.weight", "own_draws", "generator"} <= set(adapter.live())
    adapter(images)
    assert "optimizer.projector.weight.momentum_buffer" in adapter.live()


def test_a_learning_rate_that_moves_is_reset_and_saved(
    model: nn.Module, images: Tensor, tmp_path: Path
) -> None:
    adapter: Any = tapr.adapt(model, "tent")
    adapter(images)
    adapter.optimizer.param_groups[0]["lr"] = 0.5
    adapter.save(tmp_path / "state")
    other: Any = tapr.load(tmp_path / "state", model)
    assert other.optimizer.param_groups[0]["lr"] == 0.5
    adapter.reset()
    assert adapter.optimizer.param_groups[0]["lr"] == 1e-3


def changed(path: Path, change: Callable[[dict[str, Tensor], dict[str, Any]], None]) -> None:
    """Write a saved state anew with something in it changed."""
    from tapr.models import state

    tensors, metadata = state.read(path)
    change(tensors, metadata)
    state.write(path, tensors, metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m: t.pop("generator"), "expected a tensor 'generator', found none"),
        (lambda t, m: t.update(generator=torch.zeros(9, dtype=torch.uint8)), "no state of a gen"),
        (lambda t, m: t["model.1.weight"].fill_(float("nan")), "finite values in 'model.1.weight'"),
        (lambda t, m: t.update({"model.1.weight": torch.ones(1)}), r"shape \[6\], got \[1\]"),
        (
            lambda t, m: t.update({"model.1.weight": torch.ones(6).double()}),
            "float32, got torch.float64",
        ),
        (
            lambda t, m: t.update({"optimizer.model.1.weight.exp_avg": torch.ones(1)}),
            r"exp_avg' of shape \[6\], got \[1\]",
        ),
        (lambda t, m: t.update({"optimizer.generator.x": torch.ones(1)}), "not adapted here"),
        (lambda t, m: t.update({"model.9.mask": torch.ones(1)}), "not adapted here"),
        (lambda t, m: t.update({"model.0.weight": torch.ones(1)}), "not adapted here"),
        (lambda t, m: m.update(numbers=[]), "expected names with numbers"),
        (lambda t, m: m.update(numbers={"optimizer.0.lr": float("inf")}), "expected no number"),
        (lambda t, m: m.update(numbers={"optimizer.0.lrr": 1.0}), "expected no number"),
        (lambda t, m: m.update(layout="sideways"), "unknown layout"),
    ],
)
def test_loading_is_all_or_nothing(
    model: nn.Module, images: Tensor, tmp_path: Path, change: Any, message: str
) -> None:
    adapter = tapr.adapt(model, "tent")
    adapter(images)
    adapter.save(tmp_path / "state")
    changed(tmp_path / "state", change)
    other = tapr.adapt(model, "tent")
    other(images.flip(3))
    before = other.capture()
    with pytest.raises(tapr.TaprError, match=message):
        other.load(tmp_path / "state")
    after = other.capture()
    assert before.numbers == after.numbers
    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in after.tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t, m: m["recipe"].update(inplace=True), "asks for inplace"),
        (lambda t, m: m["recipe"].update(steps=10**9), "asks for 1000000000 steps"),
        (lambda t, m: m["recipe"].update(method="os:system"), "which is your own"),
        (lambda t, m: m["recipe"].update(method=3), "did not make"),
        (lambda t, m: m["recipe"].update(lr="fast"), "expected lr of at least 0"),
        (lambda t, m: m["recipe"].update(lrr=1), "unknown option 'lrr'"),
        (lambda t, m: m.update(recipe=None), "did not make"),
    ],
)
def test_a_file_does_not_decide_what_the_caller_decides(
    model: nn.Module, tmp_path: Path, change: Any, message: str
) -> None:
    tapr.adapt(model, "pest").save(tmp_path / "state")
    changed(tmp_path / "state", change)
    with pytest.raises(tapr.TaprError, match=message):
        tapr.load(tmp_path / "state", model)


def test_more_steps_than_usual_are_the_callers_to_allow(model: nn.Module, tmp_path: Path) -> None:
    tapr.adapt(model, "pest", steps=200).save(tmp_path / "state")
    with pytest.raises(tapr.TaprError, match="most_steps=100"):
        tapr.load(tmp_path / "state", model)
    assert tapr.load(tmp_path / "state", model, most_steps=200).recipe["steps"] == 200
