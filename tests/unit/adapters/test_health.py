"""Health without labels: what is compared, what follows from it, and that nothing breaks on it."""

import inspect
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import guard, shadow
from tapr.adapters.health import Comparison, show_nothing
from tapr.adapters.shadow import Said
from tapr.methods.steady import Steady
from tapr.types import Health


def smooth(count: int, seed: int = 0, size: tuple[int, int, int] = (3, 10, 9)) -> Tensor:
    """Images whose neighbouring pixels are alike."""
    noise = torch.rand(count, *size, generator=torch.Generator().manual_seed(seed))
    return (noise + noise.roll(1, 3)) / 2


def logits(classes: Tensor, count: int = 10, sure: float = 6.0) -> Tensor:
    return sure * nn.functional.one_hot(classes, count).float()


def compared(adapted: Tensor, source: Tensor, witness: Tensor, **more: Any) -> Health:
    """The health after batches of 100 of these predictions."""
    comparison, health = Comparison(500.0), Health()
    for rows in zip(*(torch.split(t, 100) for t in (adapted, source, witness)), strict=True):
        said = Said(rows[1], rows[2].softmax(1), rows[1], 1.0, None)
        health = comparison(rows[0], said, **{"apart": True, **more})
    return health


CLASSES = torch.arange(400) % 10
OTHERS = (CLASSES + 1) % 10


def mixed(right: float) -> Tensor:
    """Classes of which this share is right."""
    return torch.where(torch.arange(400) % 20 < 20 * right, CLASSES, OTHERS)


@pytest.mark.parametrize(
    ("adapted", "source", "verdict"),
    [
        (1.0, 0.5, "ok"),
        (0.5, 0.5, "ok"),
        (0.5, 1.0, "harm"),
        (0.95, 1.0, "harm"),
    ],
)
def test_the_verdict_follows_the_witness(adapted: float, source: float, verdict: str) -> None:
    health = compared(logits(mixed(adapted)), logits(mixed(source)), logits(CLASSES))
    assert health.verdict == verdict
    assert bool(health.reason) == (verdict != "ok")
    assert health.credit == pytest.approx(adapted - source, abs=0.03)
    assert health.images == 400


def test_what_chance_may_do_is_no_harm() -> None:
    """One of 400 images, and the witness knows no better: a model to watch."""
    adapted = CLASSES.clone()
    adapted[0] = 5
    health = compared(logits(adapted), logits(CLASSES), logits(CLASSES, sure=1.0))
    assert health.verdict == "watch"


def test_without_a_witness_a_model_that_says_fewer_classes_does_harm() -> None:
    collapsed, alike = logits(CLASSES * 0), logits(CLASSES)
    assert compared(collapsed, alike, alike, apart=False).verdict == "harm"
    assert compared(alike, collapsed, collapsed, apart=False).verdict == "ok"
    assert "fewer classes" in compared(collapsed, alike, alike, apart=False).reason


def test_the_numbers_of_a_known_case() -> None:
    health = compared(logits(CLASSES * 0, sure=50.0), logits(CLASSES, sure=50.0), logits(CLASSES))
    assert health.spread == pytest.approx(0, abs=1e-4)
    assert health.source_spread == pytest.approx(1, abs=1e-4)
    assert health.information == pytest.approx(0, abs=1e-4)
    assert health.source_information == pytest.approx(1, abs=1e-4)
    assert health.entropy == pytest.approx(0, abs=1e-4)
    assert health.agreement == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
@pytest.mark.parametrize("count", [1, 2, 31, 200])
def test_a_constant_source_is_no_alarm(classes: int, count: int) -> None:
    """Whatever a model says that has nothing to say, and one that agrees with it."""
    said = torch.zeros(400, classes)
    comparison = Comparison(500.0)
    for rows in torch.split(said, count):
        answer = Said(rows, rows.softmax(1), rows, 1.0, None)
        health = comparison(rows, answer, apart=True)
        assert health.verdict == "ok"
        assert all(torch.isfinite(t).all() for t in comparison.buffers())


@pytest.mark.parametrize(
    ("images", "share"),
    [
        (torch.zeros(4, 3, 8, 8), 1),
        (torch.ones(4, 3, 8, 8), 1),
        (torch.tensor([0.2, 0.5, 0.7]).view(1, 3, 1, 1).expand(4, 3, 8, 8), 1),
        (torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0)), 1),
        (smooth(4, size=(3, 32, 32)), 0),
        (smooth(4, size=(3, 32, 32)) * 0.05 + 0.5, 0),  # little contrast
        (smooth(4, size=(1, 28, 28)).round(), 0),  # black and white
        (torch.zeros(1, 3, 1, 1), 1),
        (torch.cat([torch.zeros(2, 3, 32, 32), smooth(2, size=(3, 32, 32))]), 0.5),
    ],
)
def test_images_that_show_nothing(images: Tensor, share: float) -> None:
    assert show_nothing(images) == share


@pytest.mark.parametrize("mode", ["watch", "act"])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_every_prediction_of_a_short_stream_is_defined(
    model: nn.Module, mode: Any, count: int
) -> None:
    adapter = tapr.adapt(model, "tent", guard=mode)
    assert adapter.health() is None
    for seed in range(3):
        assert torch.isfinite(adapter(smooth(count, seed))).all()
    health = adapter.health()
    assert health is None if 3 * count < 8 and mode == "watch" else health is not None


def test_its_cost_is_counted_apart(model: nn.Module) -> None:
    images = smooth(64)
    plain = tapr.adapt(model, "tent", guard="off").predict(images)
    watched = tapr.adapt(model, "tent").predict(images)
    acting = tapr.adapt(model, "tent", guard="act").predict(images)
    assert (plain.shadow, watched.shadow, acting.shadow) == (0, 3 * 8, 3 * 64)
    assert plain.forward == watched.forward == acting.forward == 64
    assert plain.health is None
    assert tapr.adapt(model, "steady", guard="act").predict(images).shadow == 0
    assert tapr.adapt(model, "source").predict(images).health is None


def test_watching_asks_about_one_image_in_eight_whatever_the_batch(model: nn.Module) -> None:
    """A few at a time cost as much as many: in large batches those that are due wait for others."""
    images = smooth(320)
    for size, looks in ((1, 40), (5, 8), (64, 2), (320, 1)):
        adapter = tapr.adapt(model, "norm")
        shadows = [adapter.predict(part).shadow for part in torch.split(images, size)]
        assert sum(map(bool, shadows)) == looks
        assert sum(shadows) == pytest.approx(3 * 40, abs=3 * 5)


def test_a_comparison_runs_no_more_images_at_once_than_the_batch_has(model: nn.Module) -> None:
    """All views at once took three times the memory of a batch, and only from the ninth one on."""
    rows: list[int] = []
    adapter = tapr.adapt(model, "norm")
    adapter.model.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    shadows = [adapter.predict(part).shadow for part in torch.split(smooth(160), 16)]
    assert max(shadows) == 3 * 16
    assert max(rows) == 16


def test_health_is_forgotten_by_reset_and_kept_by_save(model: nn.Module, tmp_path: Path) -> None:
    adapter = tapr.adapt(model, "tent", guard="act")
    for seed in range(3):
        adapter(smooth(40, seed))
    adapter.save(tmp_path / "state")
    other = tapr.load(tmp_path / "state", model)
    assert other.predict(smooth(40, 4)).health == adapter.predict(smooth(40, 4)).health
    adapter.reset()
    assert adapter.health() is None
    fresh = tapr.adapt(model, "tent", guard="act")
    assert adapter.predict(smooth(40)).health == fresh.predict(smooth(40)).health


@pytest.mark.parametrize(("saved", "loaded"), [("off", "act"), ("act", "off"), ("watch", "off")])
def test_a_state_may_be_loaded_under_another_guard(
    model: nn.Module, tmp_path: Path, saved: Any, loaded: Any
) -> None:
    adapter = tapr.adapt(model, "tent", guard=saved)
    adapter(smooth(40))
    adapter.save(tmp_path / "state")
    other = tapr.load(tmp_path / "state", model, guard=loaded)
    for name, tensor in other.live().items():
        if not name.startswith("guard."):
            assert torch.equal(tensor, adapter.live()[name])
    assert torch.isfinite(other(smooth(40, 1))).all()


def test_it_is_an_option_of_every_method_and_unsaid_at_its_default(model: nn.Module) -> None:
    assert "guard" not in tapr.recipe("tent")
    assert tapr.recipe("tent", guard="act")["guard"] == "act"
    assert tapr.presets("pest")["paper"]["guard"] == "watch"
    with pytest.raises(tapr.TaprError, match="unknown guard 'watc'; did you mean 'watch'"):
        tapr.adapt(model, "tent", guard="watc")


def test_the_shadow_votes_as_steady_does() -> None:
    defaults = {n: p.default for n, p in inspect.signature(Steady).parameters.items()}
    assert defaults["votes"] == shadow.VOTERS
    statistics = shadow.STATISTICS
    assert (statistics.share, statistics.prior, statistics.window) == tuple(
        defaults[name] for name in ("share", "prior", "window")
    )


def test_the_shadow_asks_its_voters_one_by_one_and_steady_all_at_once(model: nn.Module) -> None:
    adapter, steady = tapr.adapt(model, "norm"), tapr.adapt(model, "steady", guard="off")
    voters = shadow.Shadow(adapter.model)
    for seed in range(3):
        images = smooth(40, seed)
        torch.testing.assert_close(voters(adapter, images).answer, steady(images))
    for name, buffer in voters.norms.named_buffers():
        torch.testing.assert_close(buffer, steady.get_buffer(f"norms.{name}"))


def test_the_shadow_is_the_source_model(model: nn.Module) -> None:
    adapter = tapr.adapt(model, "pest", lr=0.1)
    images = smooth(8)
    expected = tapr.adapt(model, "source")(images)
    for seed in range(2):
        adapter(smooth(8, seed))
    assert torch.equal(shadow.ask(adapter, images), expected)
    said = shadow.Shadow(adapter.model)(adapter, images)
    assert torch.allclose(said.source, expected, atol=1e-5)
    layers = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert len(said.layers) == len(layers)


def test_the_shift_is_nothing_for_images_of_the_sources_own_statistics(
    make_model: Callable[..., nn.Sequential],
) -> None:
    model, images = make_model(), smooth(16)  # as many as are looked at
    far = tapr.adapt(model, "norm", guard="act").predict(images).health
    model.train()
    vars(model[1])["momentum"] = 1.0
    model(images)
    near = tapr.adapt(model.eval(), "norm", guard="act").predict(images).health
    assert near is not None
    assert far is not None
    assert near.shift[0] < 1e-4 < 0.01 < far.shift[0]


def test_the_distance_is_that_of_the_parameters(model: nn.Sequential) -> None:
    adapter = tapr.adapt(model, "tent", guard="act", lr=0.1)
    health = adapter.predict(smooth(40)).health
    moved = torch.cat([adapter.live()[f"model.1.{n}"].flatten() for n in ("weight", "bias")])
    source = torch.cat([p.flatten() for p in model[1].parameters()])
    assert health is not None
    expected = ((moved - source).norm() / source.norm()).item()
    assert health.distance == pytest.approx(expected)


class Counting(nn.Module):
    """A model whose forward changes buffers in place, by another tensor, and by a new name."""

    calls: Tensor
    images: Tensor
    seen: Tensor

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("images", torch.tensor(0))

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        self.images = self.images + len(images)
        if "seen" not in self._buffers:
            self.register_buffer("seen", torch.tensor(0))
        self.seen += 1
        logits: Tensor = self.model(images)
        return logits


def test_a_model_that_counts_its_forwards_does_not_notice(model: nn.Module) -> None:
    one, two = (tapr.adapt(Counting(model), "tent", guard=mode) for mode in ("off", "watch"))
    for seed in range(3):
        assert torch.equal(one(smooth(16, seed)), two(smooth(16, seed)))
    for name, buffer in one.model.named_buffers():
        assert torch.equal(buffer, dict(two.model.named_buffers())[name])


class Drawing(nn.Module):
    """A model that draws from torch's own generator."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1)[:, :5] + torch.rand(5)


def test_the_global_generator_is_left_alone() -> None:
    said = []
    for mode in ("off", "watch", "act"):
        torch.manual_seed(0)
        adapter = tapr.adapt(Drawing(), "steady", weights="equal", share=[0.5, 0.5, 0.5])
        adapter.guard = guard.Guard(guard.MODES[mode], adapter.model)
        said.append([adapter(smooth(40, seed)) for seed in range(2)])
    assert torch.equal(said[0][1], said[1][1])


class Sixteen(nn.Module):
    """A model for batches of sixteen and no others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        if len(images) != 16:
            raise RuntimeError(f"expected 16 images, got {len(images)}")
        logits: Tensor = self.model(images)
        return logits


class Unmirrored(Sixteen):
    """A model that also fails on mirrored images."""

    def forward(self, images: Tensor) -> Tensor:
        if images[..., 0].mean() > images[..., -1].mean():
            raise RuntimeError("expected the light on the right")
        return super().forward(images)


def test_a_model_that_cannot_be_asked_is_adapted_all_the_same(
    model: nn.Module, caplog: pytest.LogCaptureFixture
) -> None:
    watched, plain = (tapr.adapt(Sixteen(model), "tent", guard=m) for m in ("watch", "off"))
    for seed in range(3):
        assert torch.equal(watched(smooth(16, seed)), plain(smooth(16, seed)))
    assert caplog.text.count("the health is not known") == 1
    assert tapr.adapt(Sixteen(model), "tent", guard="act").predict(smooth(16)).shadow == 3 * 16
    with pytest.raises(tapr.TaprError, match="expected the light on the right"):
        tapr.adapt(Unmirrored(model), "tent", guard="act")(smooth(16) * torch.linspace(0.1, 1, 9))


def test_a_copy_goes_its_own_way(model: nn.Module) -> None:
    adapter = tapr.adapt(model, "tent", guard="act")
    adapter(smooth(40))
    copy = deepcopy(adapter)
    copy(smooth(40, 1))
    assert adapter.predict(smooth(40, 1)).health == copy.health()
