"""RoTTA and NOTE, which learn from a memory, against plain PyTorch, in float64."""

import logging
import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from tests.reference.common import Darker, close
from torch import Tensor, nn

import tapr
from tapr import rng
from tapr.adapters.memory import Balanced, Item, Timely

SIZES = (7, 64, 1, 2, 30)


@pytest.fixture
def net(make_model: Callable[..., nn.Sequential]) -> Any:
    model: Any = make_model().double()
    with torch.no_grad():
        model(batches(50)[0])
        model[1].running_mean.fill_(0.1)
    return model


def batches(*sizes: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(4)
    light = torch.rand(sum(sizes), 1, 1, 1, generator=generator)  # images that differ more
    images = torch.rand(sum(sizes), 3, 9, 8, generator=generator) * light
    return list(torch.split(images.double(), list(sizes)))


class RobustBN(nn.Module):
    """Its own statistics follow the batch by 0.05, and it normalises with them."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.mean, self.variance = layer.running_mean.clone(), layer.running_var.clone()

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean, self.variance
        if self.training:
            mean = 0.95 * mean + 0.05 * x.mean((0, 2, 3))
            variance = 0.95 * variance + 0.05 * x.var((0, 2, 3), unbiased=False)
            self.mean, self.variance = mean.detach(), variance.detach()
        shape = (1, -1, 1, 1)
        normal = (x - mean.view(shape)) / (variance.view(shape) + self.eps).sqrt()
        return torch.as_tensor(normal * self.weight.view(shape) + self.bias.view(shape))


class WrittenOutRoTTA:
    def __init__(self, net: Any, capacity: int, every: int) -> None:
        self.student, self.teacher = deepcopy(net), deepcopy(net)
        for model in (self.student, self.teacher):
            model[1] = RobustBN(model[1])
        self.optimizer = torch.optim.Adam(self.student[1].parameters(), lr=1e-3)
        self.capacity, self.every, self.count = capacity, every, 0
        self.memory: list[dict[str, Any]] = []  # in the order of arrival
        self.generator = rng.generator(0, "views")

    def __call__(self, images: Tensor) -> Tensor:
        self.student.eval(), self.teacher.eval()
        with torch.no_grad():
            logits = self.teacher(images)
        p = logits.softmax(1)
        for image, row in zip(images, p, strict=True):
            new = {"image": image, "label": int(row.argmax()), "age": 0}
            new["entropy"] = float(-(row * torch.log(row + 1e-6)).sum())
            self.insert(new, p.shape[1])
            for item in self.memory:
                item["age"] += 1
            self.count += 1
            if self.count % self.every == 0:
                self.update()
        return torch.as_tensor(logits)

    def insert(self, new: dict[str, Any], classes: int) -> None:
        def score(item: dict[str, Any]) -> float:
            age = 1 / (1 + math.exp(-item["age"] / self.capacity))
            return age + float(item["entropy"]) / math.log(classes)

        counts = [sum(item["label"] == label for item in self.memory) for label in range(classes)]
        if counts[new["label"]] < self.capacity / classes:
            if len(self.memory) < self.capacity:
                self.memory.append(new)
                return
            fullest = {label for label in range(classes) if counts[label] == max(counts)}
        else:
            fullest = {new["label"]}
        candidates = [item for item in self.memory if item["label"] in fullest]
        worst = max(candidates, key=lambda item: (score(item), item["label"], -item["age"]))
        if score(worst) > score(new):
            self.memory = [item for item in self.memory if item is not worst]
            self.memory.append(new)

    def update(self) -> None:
        self.student.train(), self.teacher.train()
        items = sorted(self.memory, key=lambda item: item["label"])  # class by class
        images = torch.stack([item["image"] for item in items])
        ages = torch.tensor([item["age"] for item in items]).double() / self.capacity
        weights = torch.exp(-ages) / (1 + torch.exp(-ages))
        with torch.no_grad():
            target = self.teacher(images).softmax(1)
        student = self.student(Darker()(images, self.generator))
        loss = (weights * -(target * student.log_softmax(1)).sum(1)).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        for slow, fast in zip(self.teacher.parameters(), self.student.parameters(), strict=True):
            slow.data = 0.999 * slow.data + 0.001 * fast.data
        self.student.eval(), self.teacher.eval()


@pytest.mark.parametrize("preset", ["paper", "released"])
@pytest.mark.parametrize(
    ("capacity", "every"), [(64, 64), (8, 3), (3, 16)]
)  # 3: fewer than classes
def test_rotta(net: Any, preset: str, capacity: int, every: int) -> None:
    options: dict[str, Any] = {"augmentation": Darker(), "augmentation_options": {}}
    adapter: Any = tapr.adapt(
        net, "rotta", preset=preset, capacity=capacity, every=every, **options
    )
    plain = WrittenOutRoTTA(net, capacity, every)
    for images in batches(*SIZES):
        close(adapter(images), plain(images))
    for ours, theirs in ((adapter.model, plain.student), (adapter.teacher.model, plain.teacher)):
        close(ours[1].weight, theirs[1].weight)
        close(ours[1].running_mean, theirs[1].mean)
        close(ours[1].running_var, theirs[1].variance)
    assert not torch.equal(adapter.model[1].weight, net[1].weight)
    assert not torch.equal(adapter.model[1].running_mean, adapter.teacher.model[1].running_mean)
    stored = {(item["label"], item["age"]) for item in plain.memory}
    memory = adapter.memory
    assert set(zip(memory.labels.tolist(), memory.ages.tolist(), strict=True)) == stored


def test_rotta_learns_from_what_a_cut_stream_had_before(net: Any) -> None:
    """The memory counts images, not batches; only the answer is made at a batch's start."""
    images = batches(96)[0]
    one, other = (tapr.adapt(net, "rotta", augmentation=Darker(), lr=0.0) for _ in range(2))
    for part in torch.split(images, 32):
        one(part)
    for part in torch.split(images, [63, 1, 32]):
        other(part)
    for left, right in zip(one.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(left, right)


def item(age: int, entropy: float, label: int = 0) -> Item:
    return Item(torch.zeros(1), label, entropy, age)


def test_scores_weights_and_quotas_of_the_timely_memory() -> None:
    memory = Timely(64)
    assert memory.score(item(0, 0.0), 10) == 0.5
    assert memory.score(item(0, math.log(10)), 10) == pytest.approx(1.5)
    assert memory.weights([item(0, 0.0), item(64, 0.0)]) == pytest.approx([0.5, 0.26894], abs=1e-5)
    shelves: list[list[Item]] = [[] for _ in range(10)]
    for _ in range(50):
        memory.take(shelves, item(0, 0.1, label=3))
    assert [len(shelf) for shelf in shelves] == [0, 0, 0, 7, 0, 0, 0, 0, 0, 0]  # 6.4: up to 7
    hundred: list[list[Item]] = [[] for _ in range(100)]
    for number in range(300):
        memory.take(hundred, item(0, 0.1, label=number % 100))
    assert max(map(len, hundred)) == 1
    assert sum(map(len, hundred)) == 64


class IABN(nn.Module):
    def __init__(self, layer: Any, batch: bool) -> None:
        super().__init__()
        self.bn, self.batch = layer, batch
        self.bn.momentum = 0.01

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.shape[2] * x.shape[3]
        if self.training or self.batch:
            mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=True)
            if not self.batch:
                self.bn(x)  # moves the stored statistics
        else:
            mean, variance = self.bn.running_mean, self.bn.running_var
        mean, variance = mean.view(1, -1, 1, 1), variance.view(1, -1, 1, 1)
        if pixels > 1:
            own_mean = x.mean((2, 3), keepdim=True)
            own_variance = x.var((2, 3), unbiased=True, keepdim=True)
            eps = self.bn.eps
            by_chance = ((variance + eps) / pixels).sqrt()
            variance_by_chance = (variance + eps) * math.sqrt(2 / (pixels - 1))
            mean = mean + softshrink(own_mean - mean, 4 * by_chance)
            variance = variance + softshrink(own_variance - variance, 4 * variance_by_chance)
            variance = variance.clamp(min=0)
        normal = (x - mean) / (variance + self.bn.eps).sqrt()
        scaled = normal * self.bn.weight.view(1, -1, 1, 1) + self.bn.bias.view(1, -1, 1, 1)
        return torch.as_tensor(scaled)


def softshrink(x: Tensor, by: Tensor) -> Tensor:
    return torch.where(x > by, x - by, torch.where(x < -by, x + by, torch.zeros_like(x)))


class WrittenOutNOTE:
    """Image by image; for `iid` by parts between updates, whose statistics the images share."""

    def __init__(self, net: Any, preset: str, every: int, capacity: int) -> None:
        self.model, self.preset = deepcopy(net), preset
        self.model[1] = IABN(self.model[1], preset == "iid")
        self.model.eval()
        parameters = list(self.model[1].parameters())
        self.optimizer = torch.optim.Adam(parameters, lr=1e-3 if preset == "iid" else 1e-4)
        self.every, self.capacity, self.count = every, capacity, 0
        self.generator = rng.generator(0, "memory")
        self.memory: list[tuple[Tensor, int]] = []
        self.seen: dict[int, int] = {}

    def __call__(self, images: Tensor) -> Tensor:
        said = []
        while len(images):
            due = self.every - self.count % self.every
            part, images = images[:due], images[due:]
            groups = [part] if self.preset == "iid" else list(part[:, None])
            for group in groups:
                with torch.no_grad():
                    said.append(self.model(group))
                for image, label in zip(group, said[-1].argmax(1).tolist(), strict=True):
                    self.insert(image, label)
            self.count += len(part)
            if self.count % self.every == 0:
                self.update()
        return torch.cat(said)

    def insert(self, image: Tensor, label: int) -> None:
        if self.preset == "iid":
            self.memory = [*self.memory, (image, label)][-self.capacity :]
            return
        self.seen[label] = self.seen.get(label, 0) + 1
        if len(self.memory) >= self.capacity:
            places: dict[int, list[int]] = {}
            for place, (_, stored) in enumerate(self.memory):
                places.setdefault(stored, []).append(place)
            most = max(map(len, places.values()))
            largest = sorted(name for name, own in places.items() if len(own) == most)
            if label not in largest:
                chosen = places[largest[self.drawn(len(largest))]]
            else:
                u = float(torch.rand((), generator=self.generator, dtype=torch.float64))
                if u > most / self.seen[label]:
                    return
                chosen = places[label]
            del self.memory[chosen[self.drawn(len(chosen))]]
        self.memory.append((image, label))

    def drawn(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self.generator))

    def update(self) -> None:
        self.model.train()
        p = self.model(torch.stack([image for image, _ in self.memory])).softmax(1)
        entropy = -(p * torch.log(p + 1e-6))
        loss = entropy.mean() if self.preset == "released" else entropy.sum(1).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.model.eval()


@pytest.mark.parametrize("preset", ["paper", "released", "iid"])
@pytest.mark.parametrize(("capacity", "every"), [(64, 64), (8, 3), (3, 16)])
def test_note(net: Any, preset: str, capacity: int, every: int) -> None:
    adapter: Any = tapr.adapt(net, "note", preset=preset, capacity=capacity, every=every)
    plain = WrittenOutNOTE(net, preset, every, capacity)
    for images in batches(*SIZES):
        close(adapter(images), plain(images))
    layer, bn = adapter.model[1], plain.model[1].bn
    close(layer.weight, bn.weight)
    close(layer.running_mean, bn.running_mean)
    close(layer.running_var, bn.running_var)
    assert not torch.equal(layer.weight, net[1].weight)
    assert sorted(adapter.memory.labels.tolist()) == sorted(label for _, label in plain.memory)


def test_some_images_are_corrected_and_others_are_not(net: Any) -> None:
    """So that the soft threshold above says something."""
    x = net[0](batches(96)[0])
    mean, variance = net[1].running_mean.view(1, -1), net[1].running_var.view(1, -1)
    off = (x.mean((2, 3)) - mean).abs() > 4 * (variance / 72).sqrt()
    assert 0.05 < off.double().mean() < 0.95


def test_note_does_not_depend_on_how_the_stream_is_cut(net: Any) -> None:
    images = batches(96)[0]
    one, other = (tapr.adapt(net, "note", every=10, capacity=7, lr=0.01) for _ in range(2))
    together = one(images)
    alone = torch.cat([other(image[None]) for image in images])
    close(together, alone)


def test_the_balanced_memory_is_even_and_within_a_class_a_fair_sample() -> None:
    memory = Balanced(capacity=20, seed=1)
    shelves: list[list[Item]] = [[] for _ in range(4)]
    for number in range(400):
        memory.take(shelves, item(number, 0.0, label=0 if number < 390 else 1 + number % 3))
    assert sorted(map(len, shelves)) == [3, 3, 4, 10]
    kept = []
    for seed in range(200):  # of 40 images of one class, each stays equally often
        memory, shelves = Balanced(capacity=10, seed=seed), [[]]
        for number in range(40):
            memory.take(shelves, item(number, 0.0))
        kept += [one.age for one in shelves[0]]
    counts = torch.bincount(torch.tensor(kept), minlength=40).double()
    assert counts.sum() == 2000
    assert counts.min() > 25  # 50 on average, with a standard deviation of 6
    assert counts.max() < 75


def test_note_says_when_the_model_may_not_have_been_trained_so(
    net: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tapr"):
        tapr.adapt(net, "note", trained_so=True)(batches(2)[0])
        assert not caplog.messages
        tapr.check(net, batches(2)[0], "note")
    assert "trained with instance-aware batch norm" in caplog.text


def test_note_needs_batch_norm(make_model: Callable[..., nn.Sequential]) -> None:
    with pytest.raises(
        tapr.TaprError, match="expected a model with BatchNorm layers, which become"
    ):
        tapr.adapt(make_model(None), "note")


def given(option: str, value: object) -> dict[str, Any]:
    return {option: value}


@pytest.mark.parametrize("method", ["rotta", "note"])
@pytest.mark.parametrize("option", ["capacity", "every"])
def test_wrong_memories_get_a_sentence(net: Any, method: str, option: str) -> None:
    for wrong in (0, 1.5, True):
        with pytest.raises(tapr.TaprError, match=f"expected {option} "):
            tapr.adapt(net, method, **given(option, wrong))
