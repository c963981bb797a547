"""Methods with a teacher against plain PyTorch, in float64."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from tests.reference.common import Darker, close
from torch import Tensor, nn

import tapr
from tapr import rng

SIZES = (7, 64, 1, 2)


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


@pytest.mark.parametrize(
    ("classes", "certainty"), [(10, 0.92), (12, 0.92), (100, 0.72), (700, 0.1)]
)
def test_the_published_certainties_go_by_the_number_of_classes(
    make_model: Callable[..., nn.Sequential], classes: int, certainty: float
) -> None:
    (images,) = batches(7)
    options: dict[str, Any] = {"augmentation": Darker(), "views": 2}
    model = make_model(classes=classes).double()
    expected = tapr.adapt(model, "cotta", **options, certainty=certainty)(images)
    assert torch.equal(tapr.adapt(model, "cotta", **options)(images), expected)


def test_the_certainty_follows_from_source_images_by_the_authors_rule(net: Any) -> None:
    (images,) = batches(64)
    confidence = net(images).softmax(1).amax(1).sort().values.tolist()
    place = 0.05 * 63
    low, high = confidence[3], confidence[4]  # the quantile lies between the two
    expected = low + (place - 3) * (high - low) - 0.05
    adapter: Any = tapr.adapt(net, "cotta", source_images=images)
    assert adapter.certainty == pytest.approx(expected, abs=1e-12)
    adapter = tapr.adapt(net, "cotta", source_images=images, certainty=0.3)
    assert adapter.certainty == 0.3


class WrittenOutRMT:
    """Every view in a forward of its own; lists of images in the place of masks."""

    def __init__(
        self, net: Any, projector: nn.Module, source: tuple[Tensor, Tensor] | None
    ) -> None:
        self.student, self.teacher = deepcopy(net).train(), deepcopy(net).train()
        self.projector, self.source = deepcopy(projector), source
        parameters = [*self.student.parameters(), *self.projector.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3)
        self.views, self.sources = rng.generator(0, "views"), rng.generator(0, "sources")
        self.means = net[-1].weight.detach().clone()
        if source is not None:
            with torch.no_grad():
                features = torch.cat(
                    [self.student[:-1](part) for part in torch.split(source[0], 6)]
                )
            rows = [features[source[1] == label].mean(0) for label in range(5)]
            self.means = torch.stack(rows)

    def warm_up(self, images: int, size: int) -> None:
        assert self.source is not None
        parts: list[Tensor] = []
        while images:
            order = torch.randperm(len(self.source[0]), generator=self.sources)[:images]
            parts += [self.source[0][part] for part in torch.split(order, size)]
            images -= len(order)
        for number, part in enumerate(parts, 1):
            self.optimizer.param_groups[0]["lr"] = 1e-3 * number / len(parts)
            with torch.no_grad():
                teacher = self.teacher(part)
            self.step(symmetric(self.student(part), teacher).mean())
        self.optimizer.param_groups[0]["lr"] = 1e-3

    def step(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        follow(self.teacher, self.student)

    def __call__(self, images: Tensor) -> Tensor:
        view = Darker()(images, self.views)
        with torch.no_grad():
            teacher = self.teacher(images)
        features, other = self.student[:-1](images), self.student[:-1](view)
        logits, other_logits = self.student[-1](features), self.student[-1](other)
        loss = (0.5 * symmetric(logits, teacher) + 0.5 * symmetric(other_logits, teacher)).mean()
        loss = loss + self.contrast(features, other)
        if self.source is not None:
            known = len(self.source[0])
            order = torch.randperm(known, generator=self.sources).tolist()
            chosen = [order[number % known] for number in range(len(images))]
            said = self.student(self.source[0][chosen])
            loss = loss + nn.functional.cross_entropy(said, self.source[1][chosen])
        self.step(loss)
        return torch.as_tensor(logits.detach() + teacher)

    def contrast(self, features: Tensor, other: Tensor) -> Tensor:
        rows, images = [], len(features)
        for feature in features.detach():
            cosines = [nn.functional.cosine_similarity(feature, m, dim=0) for m in self.means]
            rows.append(self.means[int(torch.stack(cosines).argmax())])
        projected = self.projector(torch.cat([torch.stack(rows), features, other]))
        projected = projected / projected.norm(dim=1, keepdim=True)
        values = []
        for anchor in range(3 * images):
            similar = torch.exp(projected[anchor] @ projected.T / 0.1)
            others = [place for place in range(3 * images) if place != anchor]
            partners = [place for place in others if place % images == anchor % images]
            values += [-torch.log(similar[place] / similar[others].sum()) for place in partners]
        return torch.stack(values).mean()


def symmetric(one: Tensor, two: Tensor) -> Tensor:
    return 0.5 * soft_cross_entropy(one, two) + 0.5 * soft_cross_entropy(two, one)


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize("with_source", [False, True])
def test_rmt(net: Any, preset: str, with_source: bool) -> None:
    source = (batches(15)[0], torch.arange(15) % 5) if with_source else None
    options: dict[str, Any] = {"augmentation": Darker(), "augmentation_options": {}}
    if source is not None:
        options |= {"source_images": source[0], "source_labels": source[1]}
        options |= {"warm_up": 40, "warm_up_batch": 6}
    adapter: Any = tapr.adapt(net, "rmt", preset=preset, **options)
    plain = WrittenOutRMT(net, adapter.projector, source)
    close(adapter.class_means, plain.means)
    if source is not None:
        plain.warm_up(40, 6)
    for images in batches(*SIZES):
        close(adapter(images), plain(images))
    compare(adapter.model, plain.student)
    compare(adapter.teacher.model, plain.teacher)
    compare(adapter.projector, plain.projector)


def test_rmt_returns_to_the_warmed_up_model(net: Any) -> None:
    images, labels = batches(15)[0], torch.arange(15) % 5
    adapter: Any = tapr.adapt(net, "rmt", source_images=images, source_labels=labels, warm_up=30)
    first = adapter(images)
    moved = adapter.source.tensors["model.7.weight"]
    assert not torch.equal(moved, net[-1].weight)
    adapter.reset()
    assert torch.equal(adapter(images), first)


@pytest.mark.usefixtures("few_renderings")
def test_rmt_takes_the_source_from_a_data_set() -> None:
    adapter: Any = tapr.adapt(
        tapr.models.load("digits-small"), "rmt", source_images="digits", source_count=60, warm_up=0
    )
    assert adapter.given.shape[0] == len(adapter.answers) == 60
    assert set(adapter.answers.tolist()) == set(range(10))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source_images": torch.rand(3, 3, 9, 8)}, "source_images and source_labels together"),
        (
            {"source_images": torch.rand(3, 3, 9, 8), "source_labels": torch.arange(2)},
            "expected a label for each source image, got 2 for 3",
        ),
        (
            {"source_images": torch.rand(3, 3, 9, 8), "source_labels": torch.arange(3)},
            "expected source images of every class, got none of class 3",
        ),
        ({"class_means": torch.eye(4)}, r"expected class_means of shape \[5, 32\]"),
    ],
)
def test_a_source_that_cannot_be_right_gets_a_sentence(
    make_model: Callable[..., nn.Sequential], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(make_model(), "rmt", **options)


class WrittenOutAdaContrast:
    """Both models in training mode, whose statistics move by 0.1; the answer in evaluation mode."""

    def __init__(self, net: Any, queue: Tensor, labels: Tensor, first: int, size: int) -> None:
        self.student, self.slow = deepcopy(net).train(), deepcopy(net).train()
        self.optimizer = torch.optim.SGD(
            self.student.parameters(), lr=2e-4, momentum=0.9, weight_decay=1e-4, nesterov=True
        )
        self.queue = list(zip(queue.clone(), labels.tolist(), strict=True))
        self.bank: list[tuple[Tensor, Tensor]] = []
        self.generator = rng.generator(0, "views")
        self.first, self.size, self.count = first, size, 0

    def __call__(self, images: Tensor) -> Tensor:
        query, weak = (Darker()(images, self.generator) for _ in range(2))
        with torch.no_grad():
            labels = self.labels(self.student[:-1](weak))
        features = self.student[:-1](query)
        logits = self.student[-1](features)
        follow(self.slow, self.student)
        with torch.no_grad():
            keys = unit(self.slow[:-1](Darker()(images, self.generator)))
        p = logits.softmax(1)
        loss = -torch.stack([p[i, label].log() for i, label in enumerate(labels)]).mean()
        loss = loss + self.contrast(unit(features), keys, labels)
        loss = loss + (p.mean(0) * p.mean(0).log()).sum()
        self.queue = [*self.queue, *zip(keys, labels, strict=True)][-self.size :]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            seen = self.slow[:-1](weak)
            said = self.slow[-1](seen).softmax(1)
            self.bank = [*self.bank, *zip(unit(seen), said, strict=True)][-self.size :]
            self.count += len(images)
            answer = self.student.eval()(images)
        self.student.train()
        return torch.as_tensor(answer)

    def labels(self, features: Tensor) -> list[int]:
        if self.count < self.first:
            return [int(label) for label in self.student[-1](features).argmax(1)]
        found = []
        for feature in unit(features):
            near = sorted(self.bank, key=lambda entry: -float(feature @ entry[0]))[:3]
            found.append(int(torch.stack([p for _, p in near]).mean(0).argmax()))
        return found

    def contrast(self, queries: Tensor, keys: Tensor, labels: list[int]) -> Tensor:
        values = []
        for query, key, label in zip(queries, keys, labels, strict=True):
            others = [entry for entry, known in self.queue if known != label]
            alike = torch.stack([query @ other for other in [key, *others]]) / 0.07
            values.append(-alike.log_softmax(0)[0])
        return torch.stack(values).mean()


def unit(features: Tensor) -> Tensor:
    return torch.as_tensor(features / features.norm(dim=1, keepdim=True))


@pytest.mark.parametrize("start", ["random", "empty"])
def test_adacontrast(net: Any, start: str) -> None:
    options: dict[str, Any] = {"weak": Darker(), "strong": Darker(), "queue_start": start}
    adapter: Any = tapr.adapt(
        net, "adacontrast", remembered=60, plain_first=8, neighbours=3, **options
    )
    plain = WrittenOutAdaContrast(net, adapter.queue, adapter.queue_labels, 8, 60)
    for images in batches(*SIZES):
        close(adapter(images), plain(images))
    compare(adapter.model, plain.student)
    compare(adapter.slow.model, plain.slow)
    for ours, theirs in ((adapter.model, plain.student), (adapter.slow.model, plain.slow)):
        close(ours[1].running_mean, theirs[1].running_mean)
        close(ours[1].running_var, theirs[1].running_var)
    assert not torch.equal(adapter.model[0].weight, net[0].weight)
