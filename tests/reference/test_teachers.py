"""Methods with a teacher against plain PyTorch, in float64."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr import rng
from tapr.augment import Augmentation

SIZES = (7, 64, 1, 2)


def close(ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, rtol=0.0, atol=1e-10)


class Darker(Augmentation):
    """Flips every image and takes a drawn share of its light: the same arithmetic for all."""

    def sample(self, shape: Sequence[int], generator: torch.Generator) -> Tensor:
        return torch.rand(shape[0], generator=generator, dtype=torch.float64)

    def transform(self, images: Tensor, params: Tensor) -> Tensor:
        return images.flip(3) * (0.3 + 0.7 * params.view(-1, 1, 1, 1))


@pytest.fixture
def net(make_model: Callable[..., nn.Sequential]) -> Any:
    return make_model().double()


def batches(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.rand(size, 3, 9, 8, generator=generator).double() for size in sizes]


def soft_cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    return -(target.softmax(1) * logits.log_softmax(1)).sum(1)


def follow(teacher: nn.Module, student: nn.Module, keep: float = 0.999) -> None:
    for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
        slow.data = keep * slow.data + (1 - keep) * fast.data


def compare(ours: nn.Module, plain: nn.Module) -> None:
    for (name, one), two in zip(ours.named_parameters(), plain.parameters(), strict=True):
        if name == "0.bias":  # batch norm subtracts it: its gradient is rounding, Adam enlarges it
            continue
        torch.testing.assert_close(one, two, rtol=0, atol=1e-10, msg=name)


class WrittenOutCoTTA:
    """Three models in training mode, whose batch norm uses the batch's statistics."""

    def __init__(self, net: nn.Module, released: bool, imagenet: bool, certainty: float) -> None:
        self.student, self.teacher, self.anchor = (deepcopy(net).train() for _ in range(3))
        self.source = deepcopy(net)
        self.released, self.imagenet, self.certainty = released, imagenet, certainty
        parameters = list(self.student.parameters())
        if imagenet:
            self.optimizer: Any = torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True)
        else:
            self.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        self.generator = rng.generator(0, "views")

    def __call__(self, images: Tensor, views: int) -> Tensor:
        with torch.no_grad():
            target = self.target(images, views)
        student = self.student(images)
        loss = soft_cross_entropy(target, student)
        if self.imagenet:
            loss = 0.5 * loss + 0.5 * soft_cross_entropy(student, target)
        self.optimizer.zero_grad()
        loss.mean().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        follow(self.teacher, self.student)
        rate = 0.001 if self.imagenet else 0.01
        for own, source in zip(self.student.parameters(), self.source.parameters(), strict=True):
            mask = (torch.rand(own.shape, generator=self.generator) < rate).double()
            own.data = source.data * mask + own.data * (1 - mask)
        return target

    def target(self, images: Tensor, views: int) -> Tensor:
        confidence = self.anchor(images).softmax(1).max(1).values
        if self.released:
            confidence = confidence.mean().repeat(len(images))
        plain = self.teacher(images)
        if (confidence >= self.certainty).all():
            return torch.as_tensor(plain)
        said: list[Tensor] = [self.teacher(Darker()(images, self.generator)) for _ in range(views)]
        mean = torch.stack(said).mean(0)
        if not self.released:
            mean = torch.stack([z.softmax(1) for z in said]).mean(0).log()
        chosen = zip(mean, plain, confidence, strict=True)
        return torch.stack([m if c < self.certainty else p for m, p, c in chosen])


@pytest.mark.parametrize("certainty", [0.84, 1.0])  # some images or batches ask the views; all do
@pytest.mark.parametrize("preset", ["paper", "released", "imagenet"])
def test_cotta(net: Any, preset: str, certainty: float) -> None:
    with torch.no_grad():
        net[-1].weight.mul_(3)
    adapter: Any = tapr.adapt(
        net,
        "cotta",
        preset=preset,
        augmentation=Darker(),
        augmentation_options={},
        certainty=certainty,
        views=3,
    )
    plain = WrittenOutCoTTA(net, preset != "paper", preset == "imagenet", certainty)
    for images in batches(*SIZES):
        ours, theirs = adapter(images).softmax(1), plain(images, 3).softmax(1)
        close(ours, theirs)
    compare(adapter.model, plain.student)
    compare(adapter.teacher.model, plain.teacher)
    moved = (adapter.model[0].weight - net[0].weight).abs()
    assert moved.max() > 1e-4
    assert (moved == 0).any() == (preset != "imagenet")  # weights that have just returned


def test_some_images_ask_the_views_and_others_do_not(net: Any) -> None:
    """So that the gate above says something, of images and of batches."""
    net[-1].weight.data.mul_(3)
    model = deepcopy(net).train()
    confidence = [model(images).softmax(1).amax(1) for images in batches(*SIZES)]
    assert 5 < (confidence[1] < 0.84).sum() < 60
    assert [bool(each.mean() < 0.84) for each in confidence] == [True, False, False, False]


def test_cotta_with_a_frozen_teacher_and_no_restore_learns_from_the_source(net: Any) -> None:
    """Restore 0, a teacher that keeps all of its own, and no views: a fixed target."""
    adapter: Any = tapr.adapt(net, "cotta", restore=0.0, follow=1.0, certainty=0.0, lr=0.1)
    for images in batches(7, 64):
        close(adapter(images), deepcopy(net).train()(images).detach())


def test_the_published_certainties_go_by_the_number_of_classes(
    make_model: Callable[..., nn.Sequential],
) -> None:
    for classes, expected in ((10, 0.92), (12, 0.92), (100, 0.72), (1000, 0.1)):
        adapter: Any = tapr.adapt(make_model(classes=classes), "cotta")
        assert adapter._limit(classes) == expected
