"""PEST, Tent and the statistics policies against a few lines of plain PyTorch, in float64."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.augment import Augmentation


def close(ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, rtol=0.0, atol=1e-10)


class Fixed(Augmentation):
    """Views that are the same whoever makes them."""

    def sample(self, shape: Any, generator: torch.Generator) -> Tensor:
        return torch.linspace(-0.2, 0.2, shape[0], dtype=torch.float64)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        return (images.flip(3) + params.view(-1, 1, 1, 1)).clamp(0, 1)


@pytest.fixture
def setting(make_model: Callable[..., nn.Sequential]) -> tuple[Any, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return make_model().double(), torch.rand(6, 3, 9, 8, generator=generator).double()


def written_out_pest(
    model: nn.Sequential, images: Tensor, consistency: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    model = model.train()
    views = torch.cat([images, Fixed()(images.repeat(2, 1, 1, 1), torch.Generator())])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, weight_decay=5e-4)
    for _ in range(5):
        p, p1, p2 = model(views).softmax(1).chunk(3)
        mean = (p + p1 + p2) / 3
        entropy = -(p * p.log()).sum(1)
        loss = (sum(consistency(q, mean) for q in (p, p1, p2)) + entropy).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return torch.as_tensor(model.eval()(images))


def a_third_of_kl(q: Tensor, mean: Tensor) -> Tensor:
    return (q * (q.log() - mean.log())).sum(1) / 3


def kl_to_clamped(q: Tensor, mean: Tensor) -> Tensor:
    log_mean = mean.clamp(1e-7, 1).log()
    return torch.nn.functional.kl_div(log_mean, q, reduction="none").sum(1)


@pytest.mark.parametrize(
    ("preset", "consistency"), [("paper", a_third_of_kl), ("released", kl_to_clamped)]
)
@pytest.mark.parametrize("sharpness", [1.0, 30.0])  # confident predictions, too
def test_pest_is_plain_sgd_on_the_written_out_loss(
    setting: tuple[Any, Tensor],
    preset: str,
    consistency: Callable[[Tensor, Tensor], Tensor],
    sharpness: float,
) -> None:
    model, images = setting
    with torch.no_grad():
        model[-1].weight.mul_(sharpness)
    adapter = tapr.adapt(model, "pest", preset=preset, augmentation=Fixed())
    logits = adapter(images)
    plain = deepcopy(model)
    close(logits, written_out_pest(plain, images, consistency))
    compare(adapter.model, plain)


def compare(ours: nn.Module, plain: nn.Module) -> None:
    """Every parameter and every stored statistic; it moved, so the comparison says something."""
    theirs = plain.state_dict()
    for name, value in ours.state_dict().items():
        close(value, theirs[name])


def test_pest_moved_something(setting: tuple[Any, Tensor]) -> None:
    model, images = setting
    adapter = tapr.adapt(model, "pest", augmentation=Fixed())
    adapter(images)
    moved = [
        (p - q).abs().max()
        for p, q in zip(adapter.model.parameters(), model.parameters(), strict=True)
    ]
    assert min(moved[2:]) > 1e-6


def test_tent_is_adam_on_the_entropy_with_the_batchs_statistics(
    setting: tuple[Any, Tensor],
) -> None:
    model, images = setting
    adapter = tapr.adapt(model, "tent")
    ours = [adapter(images), adapter(images.flip(0))]
    plain = deepcopy(model).train()
    optimizer = torch.optim.Adam(plain[1].parameters(), lr=1e-3, betas=(0.9, 0.999))
    for batch, logits in zip((images, images.flip(0)), ours, strict=True):
        output = plain(batch)
        entropy = -(output.softmax(1) * output.log_softmax(1)).sum(1).mean()
        optimizer.zero_grad()
        entropy.backward()
        optimizer.step()
        close(logits, output)
    source = dict(model.named_parameters())
    for (name, a), b in zip(adapter.model.named_parameters(), plain.parameters(), strict=True):
        close(a, b)
        assert torch.equal(a, source[name]) == (not name.startswith("1."))


def hidden(model: Any, images: Tensor) -> Tensor:
    return torch.as_tensor(model[0](images))


def with_statistics(model: Any, images: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    plain = deepcopy(model).eval()
    plain[1].running_mean.copy_(mean)
    plain[1].running_var.copy_(variance)
    return torch.as_tensor(plain(images))


@torch.no_grad()
def test_norm_policies_are_what_they_say(setting: tuple[Any, Tensor]) -> None:
    model, images = setting
    batches = [images, images.flip(2) * 0.5]
    model[1].running_mean.fill_(0.3)
    x = [hidden(model, batch) for batch in batches]
    means = [h.mean((0, 2, 3)) for h in x]
    biased = [h.var((0, 2, 3), correction=0) for h in x]
    unbiased = [h.var((0, 2, 3), correction=1) for h in x]
    source_mean, source_variance = model[1].running_mean, model[1].running_var

    def ours(statistics: str, **more: Any) -> Any:
        adapter = tapr.adapt(model, "norm", statistics=statistics, **more)
        return [adapter(batch) for batch in batches][-1]

    def expected(mean: Tensor, variance: Tensor) -> Tensor:
        return with_statistics(model, batches[1], mean, variance)

    same = [
        (ours("batch"), expected(means[1], biased[1])),
        (ours("source"), expected(source_mean, source_variance)),
        (
            ours("cumulative"),
            expected((means[0] + means[1]) / 2, (unbiased[0] + unbiased[1]) / 2),
        ),
        (
            ours("running", statistics_momentum=0.3),
            expected(
                0.49 * source_mean + 0.21 * means[0] + 0.3 * means[1],
                0.49 * source_variance + 0.21 * unbiased[0] + 0.3 * unbiased[1],
            ),
        ),
        (
            ours("blend", prior=10),
            expected(
                (10 * source_mean + 6 * means[1]) / 16, (10 * source_variance + 6 * biased[1]) / 16
            ),
        ),
    ]
    for left, right in same:
        close(left, right)
    assert not torch.allclose(same[0][0], same[4][0])


def test_the_blend_is_for_the_prediction_the_steps_take_the_batch_s_own_statistics(
    setting: tuple[Any, Tensor],
) -> None:
    model, images = setting
    options: dict[str, Any] = {"augmentation": Fixed(), "steps": 2, "lr": 0.1}
    blend = tapr.adapt(model, "pest", statistics="blend", prior=10, **options)
    batch = tapr.adapt(model, "pest", statistics="batch", **options)
    logits, by_batch = blend(images), batch(images)
    for a, b in zip(blend.model.parameters(), batch.model.parameters(), strict=True):
        close(a, b)
    assert not torch.allclose(logits, by_batch)
    norm = tapr.adapt(blend.model, "norm", statistics="blend", prior=10)
    close(logits, norm(images))


def test_the_blend_is_refused_where_it_would_never_be_used(setting: tuple[Any, Tensor]) -> None:
    with pytest.raises(tapr.TaprError, match="expected predict='after' with statistics='blend'"):
        tapr.adapt(setting[0], "tent", statistics="blend")


@pytest.mark.parametrize("feed", ["views", "untouched"])
@pytest.mark.parametrize("statistics", ["running", "cumulative"])
def test_feed_says_which_images_move_the_statistics(
    setting: tuple[Any, Tensor], feed: str, statistics: str
) -> None:
    """Those of a second layer, too: fed by the untouched, it is as if no views had been there."""
    first, images = setting
    features = nn.Sequential(first[:3], nn.Conv2d(first[0].out_channels, 4, 1), nn.BatchNorm2d(4))
    model = nn.Sequential(features, nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)).double().eval()
    model(images)
    options: dict[str, Any] = {"statistics": statistics, "feed": feed, "lr": 0.0, "steps": 2}
    adapter = tapr.adapt(model, "pest", augmentation=Fixed(), **options)
    logits = adapter(images)
    plain = deepcopy(model).train()
    for layer in plain.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1 if statistics == "running" else None
    views = torch.cat([images, Fixed()(images.repeat(2, 1, 1, 1), torch.Generator())])
    for _ in range(2):
        plain(views if feed == "views" else images)
    for ours, theirs in zip(adapter.model.buffers(), plain.buffers(), strict=True):
        close(ours.double(), theirs.double())
    close(logits, plain.eval()(images))
    assert adapter.cost(images.shape).forward == 6 * (7 if feed == "views" else 9)


def test_learning_rate_0_does_the_same_forwards_without_a_backward(
    setting: tuple[Any, Tensor],
) -> None:
    """The control moves the statistics as the first step of PEST does, and no parameter."""
    model, images = setting
    options: dict[str, Any] = {"augmentation": Fixed(), "statistics": "running", "steps": 1}
    control: Any = tapr.adapt(model, "pest", lr=0.0, **options)
    pest: Any = tapr.adapt(model, "pest", lr=0.1, **options)
    ours, theirs = control.predict(images), pest.predict(images)
    close(torch.tensor(ours.loss), torch.tensor(theirs.loss))
    close(control.model[1].running_mean, pest.model[1].running_mean)
    for own, source in zip(control.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(own, source)
    assert (control.passes.forward, control.passes.backward) == (pest.passes.forward, 0)
