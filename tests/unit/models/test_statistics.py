"""Shares and windows of statistics against plain arithmetic, in float64."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.models import moments as moments_of
from tapr.models.statistics import Statistics


@pytest.fixture
def double(make_model: Callable[..., nn.Sequential]) -> Any:
    model = make_model().double()
    model[1].running_mean.fill_(0.3)  # type: ignore[operator]
    return model


@pytest.fixture
def batches() -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [torch.rand(n, 3, 9, 8, generator=generator).double() for n in (6, 4, 5)]


def moments(model: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    hidden = model[0](images).detach()
    return hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)


def mixed(one: Any, other: Any, share: float) -> tuple[Tensor, Tensor]:
    """The mean and variance of a crowd of which `share` belongs to the second."""
    mean = (1 - share) * one[0] + share * other[0]
    square = (1 - share) * (one[1] + one[0] ** 2) + share * (other[1] + other[0] ** 2)
    return mean, square - mean**2


def with_moments(model: Any, images: Tensor, found: tuple[Tensor, Tensor]) -> Tensor:
    hidden = (model[0](images) - found[0].view(-1, 1, 1)) / (found[1] + 1e-5).sqrt().view(-1, 1, 1)
    scaled = hidden * model[1].weight.view(-1, 1, 1) + model[1].bias.view(-1, 1, 1)
    return torch.as_tensor(model[2:](scaled)).detach()


def stored(model: Any) -> tuple[Tensor, Tensor]:
    return model[1].running_mean, model[1].running_var


def anchored(
    model: Any, stream: tuple[Tensor, Tensor], share: float, least: float = 0.0
) -> tuple[Tensor, Tensor]:
    mean, known = stored(model)[0], stored(model)[1] + 1e-5
    ratio = (stream[1] + 1e-5) / known
    nats = 0.5 * (ratio - 1 - ratio.log() + (stream[0] - mean).square() / known)
    nats = nats.clamp(max=3).mean()
    share = max(share * math.exp(-((float(nats) / 0.5) ** 2)), least)
    variance = torch.exp((1 - share) * (stream[1] + 1e-5).log() + share * known.log()) - 1e-5
    return (1 - share) * stream[0] + share * mean, variance


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_share_is_the_source_s_the_rest_the_batch_s(
    double: Any, batches: list[Tensor], share: float
) -> None:
    adapter = tapr.adapt(double, "norm", statistics="share", share=share)
    for batch in batches:
        expected = mixed(moments(double, batch), stored(double), share)
        torch.testing.assert_close(adapter(batch), with_moments(double, batch, expected))
    assert adapter.policy == f"share {share:g}"


def test_a_window_counts_images_not_batches(double: Any, batches: list[Tensor]) -> None:
    """Six and four images in two batches are remembered as ten in one."""
    options: dict[str, Any] = {"statistics": "window", "window": 100, "share": 0.2, "prior": 4}
    adapter = tapr.adapt(double, "norm", **options)
    whole = moments(double, torch.cat(batches[:2]))
    adapter(batches[0])
    expected = with_moments(double, batches[1], anchored(double, whole, 0.2, least=4 / 14))
    torch.testing.assert_close(adapter(batches[1]), expected)
    assert adapter.live()["norms.images"] == 10
    torch.testing.assert_close(adapter.live()["norms.mean_0"], whole[0])
    torch.testing.assert_close(adapter.live()["norms.variance_0"], whole[1])


def test_a_full_window_forgets_and_the_share_is_the_least(
    double: Any, batches: list[Tensor]
) -> None:
    mean, variance = moments(double, batches[2])  # not far from the stream: the share stays
    double[1].running_mean.copy_(mean)
    double[1].running_var.copy_(2 * variance)
    options: dict[str, Any] = {"statistics": "window", "window": 8, "share": 0.5, "prior": 1}
    adapter = tapr.adapt(double, "norm", **options)
    adapter(batches[0])
    stream = mixed(moments(double, batches[1]), moments(double, batches[0]), 1 - 4 / 8)
    expected = with_moments(double, batches[1], anchored(double, stream, 0.5))
    torch.testing.assert_close(adapter(batches[1]), expected)
    assert adapter.live()["norms.images"] == 8


def test_one_silent_channel_does_not_take_the_share_of_its_whole_layer() -> None:
    """A channel that never fired at training lies thousands of nats away once it does."""
    layer, share = nn.BatchNorm2d(64), torch.tensor([0.5])
    known = torch.zeros(64), torch.full((64,), 4.0)
    known[1][0] = 0.0
    stream = torch.zeros(1, 64), torch.full((1, 64), 4.0)
    assert moments_of.nats(layer, stream, known) < 0.05
    stream[1][:, 1:] = 2.0
    _, variance = moments_of.anchored(layer, stream, known, share)
    others = variance[0, 1:]
    torch.testing.assert_close(others, torch.full_like(others, 8**0.5), atol=0.1, rtol=0)


def test_the_share_fades_where_a_corruption_took_the_variance_away() -> None:
    """As under low contrast: half of the source's variance would leave next to nothing."""
    layer, shares = nn.BatchNorm2d(4), torch.tensor([0.0, 0.5, 1.0])
    known = torch.zeros(4), torch.ones(4)
    for factor, shown in ((1.0, [1.0, 1.0, 1.0]), (0.5, [0.5, 0.7, 1.0]), (0.01, [0.01, 0.01, 1])):
        stream = torch.zeros(3, 4), torch.full((3, 4), factor)
        _, variance = moments_of.anchored(layer, stream, known, shares)
        expected = torch.tensor(shown)[:, None].expand(3, 4)
        torch.testing.assert_close(variance, expected, atol=0.01, rtol=0)
    _, variance = moments_of.anchored(layer, stream, known, shares, least=0.5)
    torch.testing.assert_close(variance[:2], torch.full((2, 4), 0.1), atol=0.001, rtol=0)


def test_one_image_at_a_time_remembers_what_a_batch_does(
    double: Any, batches: list[Tensor]
) -> None:
    options: dict[str, Any] = {"statistics": "window", "window": 100}
    together, single = (tapr.adapt(double, "norm", **options) for _ in range(2))
    together(batches[0])
    for image in batches[0].chunk(6):
        single(image)
    for name in ("norms.mean_0", "norms.variance_0", "norms.images"):
        torch.testing.assert_close(single.live()[name], together.live()[name])


def test_a_share_for_each_view_gives_every_view_statistics_of_its_own(
    double: Any, batches: list[Tensor]
) -> None:
    images = batches[0]
    shares = (0.1, 0.8)
    adapter = tapr.adapt(double, "norm", statistics="share", share=shares, votes="original,flip")
    said = [
        with_moments(double, view, mixed(moments(double, view), stored(double), share)).softmax(1)
        for view, share in zip((images, images.flip(3)), shares, strict=True)
    ]
    torch.testing.assert_close(adapter(images).softmax(1), sum(said) / 2)
    with pytest.raises(tapr.TaprError, match="expected a share for each of 3 views, got 2"):
        tapr.adapt(double, "norm", statistics="share", share=shares, votes="original,flip,zoom")(
            images
        )


def test_the_gradient_of_an_adapting_forward_sees_the_share(
    double: Any, batches: list[Tensor]
) -> None:
    images, share = batches[0], 0.4
    adapter = tapr.adapt(
        double, "tent", statistics="share", share=share, optimizer="sgd", lr=0.1, momentum=0.0
    )
    logits = adapter(images)
    hidden = double[0](images).detach()
    found = mixed(moments(double, images), stored(double), share)
    scale, shift = (double[1].weight.detach().clone().requires_grad_() for _ in range(2))
    with torch.no_grad():
        shift.copy_(double[1].bias)
    normal = (hidden - found[0].view(-1, 1, 1)) / (found[1] + 1e-5).sqrt().view(-1, 1, 1)
    said = double[2:](normal * scale.view(-1, 1, 1) + shift.view(-1, 1, 1))
    entropy = -(said.softmax(1) * said.log_softmax(1)).sum(1).mean()
    entropy.backward()
    torch.testing.assert_close(logits, said.detach())
    assert scale.grad is not None
    torch.testing.assert_close(
        dict(adapter.model.named_parameters())["1.weight"], double[1].weight - 0.1 * scale.grad
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": 1.5}, "expected a share from 0 to 1.*got 1.5"),
        ({"share": [0.1, "x"]}, "expected a share from 0 to 1"),
        ({"share": []}, "expected a share from 0 to 1"),
        ({"share": "half"}, "expected a share from 0 to 1"),
        ({"share": None}, "expected a share from 0 to 1"),
        ({"window": 0}, "expected a window of 1 image or more, got 0"),
        ({"window": float("inf")}, "expected a window of 1 image or more, got inf"),
    ],
)
def test_wrong_shares_and_windows_get_a_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        Statistics("window", **options).check()
