"""A non-finite loss, gradient or parameter never reaches the model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.objectives import Entropy, Objective
from tapr.types import Loss, Outputs


class Spoiled(Objective):
    """Entropy, spoiled at one call: its value, or only its gradient."""

    def __init__(self, at: int, spoil: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.at, self.spoil, self.calls = at, spoil, 0

    def forward(self, outputs: Outputs) -> Loss:
        loss: Loss = Entropy()(outputs)
        self.calls += 1
        return Loss.mean(self.spoil(loss.per_image)) if self.calls == self.at else loss


def nan_loss(value: Tensor) -> Tensor:
    return value * float("nan")


def inf_gradient(value: Tensor) -> Tensor:
    return value + (value - value.detach()).sqrt()  # finite in value, infinite in slope


@pytest.mark.parametrize("spoil", [nan_loss, inf_gradient])
@pytest.mark.parametrize("at", [1, 3])
def test_the_bad_step_is_refused_and_the_good_ones_stay(
    model: nn.Sequential,
    images: Tensor,
    at: int,
    spoil: Callable[[Tensor], Tensor],
    caplog: pytest.LogCaptureFixture,
) -> None:
    options: dict[str, Any] = {"consistency_weight": 0, "lr": 0.01}
    adapter: Any = tapr.adapt(model, "pest", steps=5, **options)
    adapter.objective = Spoiled(at, spoil)
    prediction = adapter.predict(images)
    assert (prediction.steps, prediction.refused, adapter.refused) == (at - 1, 1, 1)
    assert "refused" in caplog.text
    assert torch.isfinite(prediction.logits).all()
    if at == 1:
        assert torch.equal(prediction.logits, tapr.adapt(model, "source")(images))
    else:
        good = tapr.adapt(model, "pest", steps=at - 1, **options)
        assert torch.equal(prediction.logits, good(images))
        for (name, a), b in zip(adapter.live().items(), good.live().values(), strict=True):
            assert torch.equal(a, b) or name in ("guard.refusals", "generator")


def test_a_parameter_that_overflows_is_taken_back(model: nn.Sequential, images: Tensor) -> None:
    adapter = tapr.adapt(model, "pest", lr=3e38, entropy_weight=1e6)
    prediction = adapter.predict(images)
    assert prediction.refused == 1
    assert all(torch.isfinite(tensor).all() for tensor in adapter.live().values())
    assert torch.isfinite(prediction.logits).all()


def test_the_stream_goes_on_after_a_refusal(model: nn.Sequential, images: Tensor) -> None:
    adapter: Any = tapr.adapt(model, "pest")
    adapter.objective = Spoiled(1, nan_loss)
    adapter(images)
    assert adapter.predict(images).steps == 5
    adapter.reset()
    assert adapter.refused == 0


def test_refusals_are_counted_on_in_an_episodic_stream(
    model: nn.Sequential, images: Tensor
) -> None:
    adapter: Any = tapr.adapt(model, "pest", episodic=True)
    adapter.objective = Spoiled(1, nan_loss)
    adapter(images)
    adapter(images)
    assert adapter.refused == 1


def test_statistics_that_overflow_are_taken_back(model: nn.Sequential, images: Tensor) -> None:
    with torch.no_grad():
        next(model.parameters()).fill_(1e30)  # finite activations, infinite variance
    adapter = tapr.adapt(model, "norm", statistics="running")
    assert adapter.predict(images).refused == 1
    assert all(torch.isfinite(tensor).all() for tensor in adapter.live().values())


def test_the_gradient_norm_can_be_limited(model: nn.Sequential, images: Tensor) -> None:
    options: dict[str, Any] = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "steps": 1}
    adapter = tapr.adapt(model, "pest", max_grad_norm=1e-3, **options)
    adapter(images)
    source = dict(model.named_parameters())
    moved = [p - source[name] for name, p in adapter.model.named_parameters()]
    length = torch.cat([step.flatten() for step in moved]).norm().item()
    assert length == pytest.approx(1e-3, rel=1e-3)


class Failing(nn.Module):
    """A layer that fails at one forward, as a device that runs out of memory does."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.calls = at, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.at:
            raise MemoryError
        return x


def test_an_exception_leaves_a_state_from_which_the_stream_goes_on(
    model: nn.Sequential, images: Tensor
) -> None:
    adapter = tapr.adapt(nn.Sequential(*model.children(), Failing(at=1)), "pest")
    with pytest.raises(MemoryError):
        adapter(images)
    assert torch.equal(adapter(images), tapr.adapt(model, "pest")(images))


@pytest.mark.parametrize(("lr", "episodic"), [(1e5, False), (1e10, False), (1e10, True)])
def test_steps_that_ruin_the_prediction_are_taken_back(
    make_model: Callable[..., nn.Sequential], images: Tensor, lr: float, episodic: bool
) -> None:
    """Finite loss, gradient and parameters at every step do not make finite logits."""
    adapter = tapr.adapt(make_model(norm=None), "pest", lr=lr, episodic=episodic)
    total = 0
    for _ in range(3):
        prediction = adapter.predict(images)
        total += prediction.refused
        assert torch.isfinite(prediction.logits).all()
        assert prediction.refused or prediction.steps == 5
    assert adapter.refused == total > 0


class Masked(nn.Module):
    """A model that rules a class out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(images)
        return torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], dim=1)


def test_a_class_that_is_ruled_out_is_no_ruin(model: nn.Sequential, images: Tensor) -> None:
    prediction = tapr.adapt(Masked(model), "pest").predict(images)
    assert (prediction.steps, prediction.refused) == (5, 0)


def pictures(count: int, seed: int = 0) -> Tensor:
    noise = torch.rand(count, 3, 10, 9, generator=torch.Generator().manual_seed(seed))
    return (noise + noise.roll(1, 3)) / 2


@pytest.mark.parametrize("method", ["pest", "tent", "norm", "steady", "note", "cotta"])
def test_nothing_is_learnt_from_images_that_show_nothing(
    model: nn.Sequential, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    options: dict[str, Any] = {"statistics": "running"} if method == "norm" else {}
    adapter = tapr.adapt(model, method, guard="act", **options)
    adapter(pictures(40))
    before = {n: t.clone() for n, t in adapter.live().items() if n not in VARIES}
    black = torch.zeros(40, 3, 10, 9)
    prediction = adapter.predict(black)
    assert torch.equal(prediction.logits, tapr.adapt(model, "source")(black))
    assert prediction.health is not None
    assert (prediction.health.verdict, prediction.health.action) == ("harm", "unlearnt")
    assert "show nothing" in prediction.health.reason
    assert "nothing was learnt" in caplog.text
    after = adapter.live()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


VARIES = ("generator", "memory.generator", "teacher.generator")


def test_a_watching_guard_lets_it_learn_and_says_so(
    model: nn.Sequential, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = tapr.adapt(model, "norm", statistics="running")
    caplog.set_level("INFO", "tapr")
    prediction = adapter.predict(torch.zeros(40, 3, 10, 9))
    assert prediction.health is not None
    assert (prediction.health.verdict, prediction.health.action) == ("harm", "")
    assert not torch.equal(
        adapter.live()["model.1.running_mean"],
        model[1].running_mean,  # type: ignore[arg-type]
    )
    assert "show nothing" in caplog.text


class Ruined(tapr.Loop):
    """Says the opposite of what the source model does, and moves a parameter at every batch."""

    def __init__(self, model: nn.Module, **common: Any) -> None:
        super().__init__(model, scope=lambda name, parameter: True, **common)

    @torch.no_grad()
    def adapt(self, images: Tensor) -> tapr.Prediction:
        prediction = super().adapt(images)
        next(self.model.parameters()).add_(1.0)
        return prediction._replace(logits=-prediction.logits)


def test_the_ladder(model: nn.Sequential, caplog: pytest.LogCaptureFixture) -> None:
    """The safer answer and nothing learnt; then a new beginning, which the log tells."""
    adapter = Ruined(model, guard="act")
    source = adapter.live()["model.0.weight"].clone()
    actions = []
    for seed in range(4):
        images = pictures(200, seed)
        prediction = adapter.predict(images)
        assert prediction.health is not None
        assert prediction.health.verdict == "harm"
        actions.append(prediction.health.action)
        assert torch.equal(adapter.live()["model.0.weight"], source)
        same = prediction.logits.argmax(1) == tapr.adapt(model, "source")(images).argmax(1)
        assert same.float().mean() > 0.5
    assert actions == ["unlearnt", "restarted", "unlearnt", "restarted"]
    assert "the adaptation was restarted" in caplog.text


def test_a_watching_guard_sees_the_same_and_does_nothing(model: nn.Sequential) -> None:
    adapter = Ruined(model)
    source = adapter.live()["model.0.weight"].clone()
    for seed in range(3):
        prediction = adapter.predict(pictures(200, seed))
    assert prediction.health is not None
    assert (prediction.health.verdict, prediction.health.action) == ("harm", "")
    assert torch.allclose(adapter.live()["model.0.weight"], source + 3)
