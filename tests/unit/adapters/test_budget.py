"""As many steps as fit into the time for a batch, on a clock that the model moves."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters.schedule import Budget


class Clock:
    """Moves with every forward of a model: `step` with a gradient behind it, else `prediction`."""

    def __init__(self, step: float, prediction: float) -> None:
        self.now, self.step, self.prediction = 0.0, step, prediction

    def __call__(self) -> float:
        return self.now

    def forward(self, *_: object) -> None:
        self.now += self.step if torch.is_grad_enabled() else self.prediction


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(step=1.0, prediction=0.25)
    monkeypatch.setattr(Budget, "clock", clock)
    return clock


def timed(model: nn.Module, clock: Clock, **options: Any) -> tapr.Adapter:
    adapter = tapr.adapt(model, **{"method": "pest", **options})
    adapter.model.register_forward_hook(clock.forward)
    return adapter


def test_as_many_steps_as_fit_are_taken(model: nn.Module, images: Tensor, clock: Clock) -> None:
    adapter = timed(model, clock, budget=3.5)
    taken = []
    for _ in range(4):
        started = clock.now
        prediction = adapter.predict(images)
        taken.append(prediction.steps)
        assert prediction.logits.shape == (8, 5)
        assert clock.now - started <= 3.5 + 0.25 * (len(taken) == 1)
    assert taken == [3, 3, 3, 3]
    assert adapter.predict(images[:4]).steps == 3  # the estimate is by image: 0.5 s each, at first


def test_time_enough_is_no_limit(model: nn.Module, images: Tensor, clock: Clock) -> None:
    free, bounded = tapr.adapt(model, "pest"), timed(model, clock, budget=100)
    assert torch.equal(free(images), bounded(images))
    assert bounded.predict(images).steps == 5


@pytest.mark.parametrize("method", ["tent", "pest"])
def test_the_prediction_comes_without_a_step(
    model: nn.Module, images: Tensor, clock: Clock, method: str
) -> None:
    adapter = timed(model, clock, method=method, budget=0.5)
    assert adapter.predict(images).steps >= 1  # nothing is known yet
    adapter.predict(images)
    before = {name: value.clone() for name, value in adapter.live().items()}
    prediction = adapter.predict(images)
    assert (prediction.steps, prediction.loss, prediction.kept) == (0, None, 0)
    assert torch.isfinite(prediction.logits).all()
    after = {n: value for n, value in adapter.live().items() if not n.startswith("guard.")}
    assert all(torch.equal(value, before[name]) for name, value in after.items())


def test_one_slow_moment_passes(model: nn.Module, images: Tensor, clock: Clock) -> None:
    adapter = timed(model, clock, budget=2.5)
    assert adapter.predict(images).steps == 2
    clock.step = 10
    adapter.predict(images)
    clock.step = 1
    taken = [adapter.predict(images).steps for _ in range(30)]
    assert taken[0] == 0
    assert taken[-1] == 2


@pytest.mark.parametrize("budget", [0, -1.0, float("nan"), "soon"])
def test_a_wrong_budget_is_refused(model: nn.Module, budget: object) -> None:
    with pytest.raises(tapr.TaprError, match="budget in seconds above 0"):
        tapr.adapt(model, "pest", budget=budget)
