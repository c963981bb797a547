"""Steady against its formulas in plain PyTorch, in float64, and what it owes on bad input."""

import math
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor, nn
from torch.nn import functional

import tapr
from tapr import testing
from tapr.adapters.votes import Votes

adapt = partial(tapr.adapt, guard="watch")  # an acting guard learns nothing from noise

SHARES, PRIOR = (1.0, 0.3, 0.5), 16.0


def pictures(*shape: int, seed: int = 3) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def voters_of(images: Tensor) -> list[Tensor]:
    """The image, its mirror image, and the image without specks, blurred by 1 2 1."""
    pixels = images.numpy()
    around = ndimage.median_filter(pixels, (1, 1, 3, 3), mode="nearest")
    pixels = np.where(abs(pixels - around) > 0.25, around, pixels)
    for axis in (2, 3):
        pixels = ndimage.convolve1d(pixels, [0.25, 0.5, 0.25], axis, mode="nearest")
    return [images, images.flip(3), torch.from_numpy(pixels)]


def test_the_zoomed_view_is_the_image_made_smaller_with_a_border_that_mirrors_it() -> None:
    images = pictures(2, 3, 18, 30)
    wide = functional.pad(images, (2, 2, 1, 1), "reflect")
    small = functional.interpolate(wide, (18, 30), mode="bilinear", antialias=True)
    torch.testing.assert_close(Votes(("zoom",)).views(images), small.clamp(0, 1))


@pytest.mark.parametrize("size", [(1, 1), (1, 5), (7, 2)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_views_of_the_smallest_images_are_defined(
    size: tuple[int, int], dtype: torch.dtype
) -> None:
    images = pictures(3, 1, *size).to(dtype)
    views = Votes(("original", "flip", "smooth", "zoom")).views(images)
    assert views.shape == (12, 1, *size)
    assert views.dtype == dtype
    assert views.min() >= 0
    assert views.max() <= 1
    alone = torch.cat([Votes(("smooth",)).views(image[None]) for image in images])
    assert torch.equal(views[6:9], alone)


def entropy(p: Tensor) -> Tensor:
    return -(p * p.clamp(min=1e-300).log()).sum(-1)


class WrittenOut:
    """The method as docs/steady.md states it; every image of the stream is kept."""

    def __init__(self, model: Any, window: float) -> None:
        self.model, self.window = model, window
        self.learning = deepcopy(model)  # the same, unless `learn` is called
        self.stored = model[1].running_mean.clone(), model[1].running_var.clone()
        self.counted = 0.0
        self.stream: list[tuple[Tensor, Tensor] | None] = [None, None, None]
        self.means: Any = 0
        self.entropies: Any = 0
        self.recent: list[Tensor] = []

    def __call__(self, images: Tensor) -> Tensor:
        total = min(self.counted + len(images), max(self.window, len(images)))
        part = len(images) / total
        p = []
        for voter, (view, share) in enumerate(zip(voters_of(images), SHARES, strict=True)):
            hidden = self.model[0](view)
            own = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)
            self.stream[voter] = mixture(self.stream[voter] or own, own, part)
            least = PRIOR / (PRIOR + total)
            plain = deepcopy(self.learning if voter else self.model)
            mean, variance = self.anchored(self.stream[voter], share, least)
            plain[1].running_mean.copy_(mean)
            plain[1].running_var.copy_(variance)
            p.append(plain(view).softmax(1))
        self.counted = total
        together = torch.stack(p)
        self.means = (1 - part) * self.means + part * together.mean(1)
        self.entropies = (1 - part) * self.entropies + part * entropy(together).mean(1)
        information = entropy(self.means) - self.entropies
        classes = together.shape[2]
        sharpness = 10 * min(1, total / (2 * classes))
        weights = (sharpness * information / math.log(classes)).softmax(0)
        trust = self.trust(p[0])
        weights = (1 - trust) * weights + trust * torch.eye(3, dtype=torch.float64)[0]
        vote: Tensor = (weights[:, None, None] * together).sum(0)
        return vote.log()

    @torch.enable_grad()
    def learn(self, images: Tensor, optimizer: torch.optim.Optimizer) -> int:
        """A step on the smoothed images that the model is sure of, scales alone; how many."""
        hidden = self.model[0](voters_of(images)[-1]).detach()
        own = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)
        mean, variance = self.anchored(own, 0.0, PRIOR / (PRIOR + len(images)))
        layer = self.learning[1]
        hidden = functional.batch_norm(
            hidden, mean, variance, layer.weight, layer.bias, eps=layer.eps
        )
        uncertain = entropy(self.learning[2:](hidden).softmax(1))
        sure = uncertain < 0.4 * math.log(self.model[-1].out_features)
        optimizer.zero_grad()
        uncertain[sure].mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return int(sure.sum())

    def trust(self, p: Tensor) -> Tensor:
        self.recent = [*self.recent, *p][-64:]
        seen = torch.stack(self.recent)
        count, classes = seen.shape
        pairs = seen @ seen.T
        same = (pairs.sum() - pairs.trace()) / max(count * (count - 1), 1)
        excess = (same - 1 / classes) / (1 - 1 / classes)
        nats = self.nats(self.stream[0] or self.stored)
        return (2 * excess * count / (count + 16)).clamp(0, 1) * torch.exp(-((nats / 0.06) ** 2))

    def nats(self, stream: tuple[Tensor, Tensor]) -> Tensor:
        known = self.stored[1] + self.model[1].eps
        ratio = (stream[1] + self.model[1].eps) / known
        distance = (stream[0] - self.stored[0]) ** 2 / known
        nats: Tensor = 0.5 * (ratio - 1 - ratio.log() + distance)
        return nats.clamp(max=3).mean()

    def anchored(self, stream: Any, share: float, least: float) -> tuple[Tensor, Tensor]:
        """The stream's moments, mixed with the stored ones, of which less is kept from afar."""
        kept = share
        if share < 1:
            kept = max(share * math.exp(-((float(self.nats(stream)) / 0.5) ** 2)), least)
        eps = self.model[1].eps
        logs = (1 - kept) * (stream[1] + eps).log() + kept * (self.stored[1] + eps).log()
        return (1 - kept) * stream[0] + kept * self.stored[0], logs.exp() - eps


def mixture(one: Any, other: Any, share: float) -> tuple[Tensor, Tensor]:
    """The moments of a mixture, with `share` of the other: the law of total variance."""
    mean = (1 - share) * one[0] + share * other[0]
    within = (1 - share) * one[1] + share * other[1]
    return mean, within + share * (1 - share) * (one[0] - other[0]) ** 2


@torch.no_grad()
@pytest.mark.parametrize("window", [500.0, 12.0])
@pytest.mark.parametrize("known", [False, True])
def test_steady_is_what_its_page_says(
    make_model: Callable[..., nn.Sequential], window: float, known: bool
) -> None:
    model: Any = make_model().double()
    batches = [pictures(count, 3, 9, 8, seed=count) for count in (6, 1, 7, 4, 9)]
    if known:  # the stream is what the source knows: the model's own images are believed
        hidden = model[0](torch.cat(batches))
        model[1].running_mean.copy_(hidden.mean((0, 2, 3)))
        model[1].running_var.copy_(hidden.var((0, 2, 3)))
    else:
        model[1].running_mean.fill_(0.3)
    adapter: Any = adapt(model, window=window)
    plain = WrittenOut(model, window)
    for batch in batches:
        torch.testing.assert_close(adapter(batch), plain(batch), rtol=0, atol=1e-9)
    assert (plain.trust(torch.stack(plain.recent)) > 0.01) == known
    for ours, source in zip(adapter.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, source)


def test_learning_is_what_its_page_says(make_model: Callable[..., nn.Sequential]) -> None:
    """By hand: a batch teaches after it was predicted; seven images wait for further ones."""
    model: Any = sure_model(make_model)
    adapter: Any = tapr.adapt(model, learn=True, lr=0.1, every=8, one_class=1.0, guard="off")
    plain = WrittenOut(model, 1000.0)
    scales = [plain.learning[1].weight, plain.learning[1].bias]
    optimizer = torch.optim.SGD(scales, lr=0.1, momentum=0.9)
    batches = [pictures(count, 3, 9, 8, seed=count) for count in (9, 7, 8, 10, 12)]
    lessons = [batches[0], None, torch.cat(batches[1:3]), batches[3], batches[4]]
    for batch, lesson in zip(batches, lessons, strict=True):
        prediction = adapter.predict(batch)
        with torch.no_grad():
            torch.testing.assert_close(prediction.logits, plain(batch), rtol=0, atol=1e-9)
        kept = 0 if lesson is None else plain.learn(lesson, optimizer)
        assert (prediction.kept, prediction.steps) == (kept, int(kept > 0))
        for ours, theirs in zip(adapter.moving.values(), scales, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert not torch.equal(scales[0], model[1].weight)


def test_images_of_one_class_teach_nothing(make_model: Callable[..., nn.Sequential]) -> None:
    model: Any = sure_model(make_model)
    with torch.no_grad():
        model[-1].bias[0] += 1000
    adapter: Any = tapr.adapt(model, learn=True, every=8, guard="off")
    prediction = adapter.predict(pictures(9, 3, 9, 8))
    assert prediction.logits.argmax(1).eq(0).all()
    assert (prediction.steps, prediction.backward) == (0, 0)


def test_after_a_change_nothing_learnt_is_left(model: nn.Module) -> None:
    adapter: Any = tapr.adapt(model, learn=True, one_class=1.0, guard="off")
    with torch.no_grad():
        adapter.model[-1].weight *= 30
    adapter(stream_of(0.0, 200, 0))
    assert any(
        not torch.equal(now, adapter.source.tensors[name]) for name, now in adapter.moving.items()
    )
    images = stream_of(0.7, 200, 1)
    fresh: Any = tapr.adapt(adapter.model, learn=True, one_class=1.0, guard="off")
    fresh.put_back(adapter.source)
    torch.testing.assert_close(adapter(images), fresh(images))


def sure_model(make_model: Callable[..., nn.Sequential]) -> Any:
    """A model in float64 with large logits, so that some images are sure."""
    model: Any = make_model().double()
    with torch.no_grad():
        model[1].running_mean.fill_(0.3)
        model[-1].weight *= 2
    return model


NORMS: dict[str, Any] = {
    "batch": nn.BatchNorm2d,
    "group": lambda channels: nn.GroupNorm(2, channels),
    "none": None,
}


@pytest.mark.parametrize("norm", NORMS)
def test_every_check_holds(make_model: Callable[..., nn.Sequential], norm: str) -> None:
    testing.check_method(partial(tapr.adapt, method="steady"), model=make_model(NORMS[norm]))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_any_batch_size_will_do(
    make_model: Callable[..., nn.Sequential], norm: str, count: int
) -> None:
    adapter = adapt(make_model(NORMS[norm]))
    for seed in range(3):
        logits = adapter(pictures(count, 3, 10, 9, seed=seed).float())
        assert logits.shape == (count, 5)
        assert logits.isfinite().all()
        torch.testing.assert_close(logits.exp().sum(1), torch.ones(count))


def test_without_batch_norm_it_is_the_weighted_vote(
    make_model: Callable[..., nn.Sequential],
) -> None:
    model, images = make_model(None).double(), pictures(6, 3, 9, 8)
    p = torch.stack([model(view).softmax(1) for view in voters_of(images)]).detach()
    information = entropy(p.mean(1)) - entropy(p).mean(1)
    weights = (10 * 6 / (2 * 5) * information / math.log(5)).softmax(0)  # 6 images of 5 classes
    expected = (weights[:, None, None] * p).sum(0).log()
    torch.testing.assert_close(adapt(model)(images), expected, rtol=0, atol=1e-10)


class Deaf(nn.Module):
    """Returns the same logits whatever the image."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        silence: Tensor = 0 * self.norm(images).mean((2, 3))
        return silence + torch.tensor([0.0, 2.0, -1.0])


BAD: dict[str, Callable[[], Tensor]] = {
    "identical": lambda: pictures(1, 3, 10, 9).float().expand(8, 3, 10, 9),
    "one colour": lambda: torch.full((8, 3, 10, 9), 0.4),
    "black": lambda: torch.zeros(8, 3, 10, 9),
    "one image": lambda: pictures(1, 3, 10, 9).float(),
}


@pytest.mark.parametrize("bad", BAD)
def test_bad_images_give_finite_predictions(model: nn.Module, bad: str) -> None:
    adapter = adapt(model)
    for _ in range(3):
        assert adapter(BAD[bad]()).isfinite().all()
    after = adapter(pictures(8, 3, 10, 9).float())
    assert after.isfinite().all()


@pytest.mark.parametrize("bad", BAD)
def test_logits_that_ignore_the_image_stay_what_they_are(bad: str) -> None:
    adapter = adapt(Deaf().eval())
    expected = torch.tensor([0.0, 2.0, -1.0]).log_softmax(0)
    for images in (BAD[bad](), pictures(5, 3, 10, 9).float()):
        torch.testing.assert_close(adapter(images), expected.expand(len(images), 3))


def test_the_very_first_image_is_nearly_the_source_model_s_vote(model: nn.Module) -> None:
    """It counts as one of 17: the statistics hardly move."""
    image = pictures(1, 3, 10, 9).float()
    views = torch.cat(voters_of(image))
    with torch.no_grad():
        vote = model(views).softmax(1).mean(0)
    assert (adapt(model)(image).exp()[0] - vote).abs().max() < 0.1


class Sided(nn.Module):
    """Tells the left from the right: a mirror image is another class to it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.norm(images)[:, 0]
        half = seen.shape[2] // 2
        lean = 20 * (seen[:, :, :half].mean((1, 2)) - seen[:, :, half:].mean((1, 2)))
        return torch.stack([lean, -lean], 1)


def test_a_view_that_no_other_agrees_with_does_not_vote() -> None:
    images = pictures(40, 3, 8, 8).float() * 0.5
    images[::2, :, :, :4] += 0.5  # bright on the left: class 0
    images[1::2, :, :, 4:] += 0.5
    labels = torch.arange(40) % 2
    adapter: Any = adapt(Sided().eval())
    first = adapter(images)
    assert adapter.votes.refused.tolist() == [False, True, False]
    assert (first.argmax(1) == labels).all()
    assert first.exp()[range(40), labels].min() > 0.9  # at once, not from the next batch on
    views = adapter.votes.views(images).chunk(3)
    assert torch.equal(views[1], images)
    assert (adapter(images).argmax(1) == labels).all()
    adapter.reset()
    assert torch.equal(adapter.votes.views(images).chunk(3)[1], images.flip(3))
    fair = adapt(Sided().eval(), "norm", votes="original,flip,zoom")
    assert fair(images).exp()[range(40), labels].min() < 0.9  # with equal weights it counts


class Overflowing(nn.Module):
    """Infinite inside for bright images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.norm, self.model = nn.BatchNorm2d(3), model

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.model(self.norm(images / (images < 0.99)).clamp(-9, 9))
        return logits


def test_what_is_not_finite_is_not_remembered(model: nn.Module) -> None:
    adapter = adapt(Overflowing(model).eval())
    good, bad = pictures(8, 3, 10, 9).float() * 0.9, torch.ones(8, 3, 10, 9)
    expected = adapt(Overflowing(model).eval())(good)
    answer = adapter.predict(bad)
    assert answer.refused == 1
    with torch.no_grad():
        assert torch.equal(answer.logits, Overflowing(model).eval()(bad))
    assert torch.equal(adapter(good), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"share": [0.1, 0.5]}, "expected a share for each of 3 voters, got 2"),
        ({"weights": "informaton"}, "did you mean 'information'"),
        ({"votes": "original,flop,zoom"}, "did you mean 'flip'"),
        ({"window": 0}, "expected a window of 1 image or more"),
    ],
)
def test_wrong_options_get_a_sentence(
    model: nn.Module, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        adapt(model, **options)


def stream_of(shift: float, count: int, seed: int) -> Tensor:
    return (pictures(count, 3, 10, 9, seed=seed) * 0.3 + shift).float()


@pytest.mark.parametrize("count", [8, 200])
def test_a_stream_that_leaps_begins_anew(model: nn.Module, count: int) -> None:
    """Dark images, then bright ones: soon the dark ones no longer count."""
    adapter: Any = adapt(model)
    for seed in range(400 // count):
        assert adapter.predict(stream_of(0.0, count, seed)).forward == 3 * count
    forwards = [
        adapter.predict(stream_of(0.7, count, 100 + seed)).forward // count
        for seed in range(400 // count)
    ]
    assert sorted(set(forwards)) == [3, 6]
    assert forwards.count(6) == 1  # the batch at which the change is noticed is predicted anew
    assert adapter.norms.images < 401
    assert adapter.votes.images == adapter.norms.images


def test_the_first_batch_after_a_change_is_predicted_as_if_the_stream_began_with_it(
    model: nn.Module,
) -> None:
    adapter = tapr.adapt(model)
    adapter(stream_of(0.0, 200, 0))
    images = stream_of(0.7, 200, 1)
    torch.testing.assert_close(adapter(images), tapr.adapt(model)(images))


def test_a_model_in_half_precision_gets_views_in_it(model: nn.Module) -> None:
    adapter = adapt(model.to(torch.bfloat16))
    logits = adapter(pictures(8, 3, 10, 9).to(torch.bfloat16))
    assert logits.dtype == torch.bfloat16
    assert logits.isfinite().all()


@pytest.mark.parametrize(("classes", "mixed"), [(10, True), (1, False), (3, False)])
def test_classes_are_called_mixed_by_all_views_but_the_first(classes: int, mixed: bool) -> None:
    voters = Votes(("original", "flip", "zoom"), "information")
    said = 8 * nn.functional.one_hot(torch.arange(60) % classes, 10).float()
    one_class = 8 * nn.functional.one_hot(torch.zeros(60).long(), 10).float()
    assert voters.mixed(torch.stack([one_class, said, said])) == mixed
    assert not voters.mixed(torch.stack([said, said, said])[:, :31])  # too few to tell
