"""The parts of a method: teacher, memory, keepers, corrections, votes, features, observers."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import (
    Correction,
    Ensemble,
    Keeper,
    Laplacian,
    Lesson,
    Memory,
    Prior,
    Prototypes,
    Recent,
    Recover,
    Restore,
    Teacher,
    Votes,
)
from tapr.objectives import Entropy
from tapr.testing import check_method


def learner(model: nn.Module, **parts: Any) -> Any:
    return tapr.Learner(model, Entropy(), **{"lr": 0.1, "momentum": 0.0, **parts})


def test_a_teacher_follows_by_its_momentum(model: nn.Module, images: Tensor) -> None:
    adapter = learner(model, teacher=Teacher(model, momentum=0.75))
    adapter(images)
    source = dict(model.named_parameters())
    student = dict(adapter.model.named_parameters())
    for name, parameter in adapter.teacher.model.named_parameters():
        expected = 0.75 * source[name] + 0.25 * student[name]
        torch.testing.assert_close(parameter, expected)
    assert not torch.equal(student["0.weight"], source["0.weight"])


def test_a_teacher_of_momentum_1_is_an_anchor(model: nn.Module, images: Tensor) -> None:
    adapter = learner(model, teacher=Teacher(model, momentum=1.0))
    adapter(images)
    for own, source in zip(adapter.teacher.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(own, source)


def test_a_teachers_buffers_follow_where_that_is_asked_for(
    model: nn.Module, images: Tensor
) -> None:
    for buffers in (False, True):
        teacher = Teacher(model, momentum=0.5, buffers=buffers)
        adapter = learner(model, teacher=teacher, statistics="running")
        adapter(images)
        start, now = model[1].running_mean, adapter.model[1].running_mean  # type: ignore[index]
        expected = (start + now) / 2 if buffers else start
        torch.testing.assert_close(adapter.teacher.model[1].running_mean, expected)
        assert not torch.equal(start, now)


def test_a_teacher_is_heard_and_counted(model: nn.Module, images: Tensor) -> None:
    heard = []

    class Heard(tapr.Learner):
        def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
            heard.append(outputs.teacher)
            return tapr.Loss.mean(outputs.logits[0].square().sum(1))

    adapter = Heard(model, teacher=Teacher(model))
    prediction = adapter.predict(images)
    torch.testing.assert_close(heard[0], model(images))
    assert prediction.forward == adapter.passes.forward * len(images) == 3 * len(images)


class EveryFour(Memory):
    """Yields each four images as a lesson, those predicted as class 0 counting double."""

    def forward(self, images: Tensor, logits: Tensor) -> Iterator[Lesson]:
        for part, said in zip(images.chunk(2), logits.chunk(2), strict=True):
            yield Lesson(part, 1.0 + (said.argmax(1) == 0).float())


def test_a_memory_says_what_to_learn_from(model: nn.Module, images: Tensor) -> None:
    seen: list[tapr.Outputs] = []

    class Weighed(tapr.Learner):
        def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
            seen.append(outputs)
            assert outputs.weights is not None
            return tapr.Loss.mean(outputs.weights * outputs.logits[0].square().sum(1))

    adapter = Weighed(model, memory=EveryFour(), predict="before", statistics="source")
    prediction = adapter.predict(images)
    assert torch.equal(prediction.logits, model(images))  # asked before anything was learnt
    assert prediction.steps == 2
    assert [torch.equal(o.images, p) for o, p in zip(seen, images.chunk(2), strict=True)] == [
        True,
        True,
    ]
    expected = 1.0 + (model(images).argmax(1) == 0).float()
    assert torch.equal(torch.cat([o.weights for o in seen if o.weights is not None]), expected)
    with pytest.raises(tapr.TaprError, match="expected predict='before' with a memory"):
        Weighed(model, memory=EveryFour(), predict="after")


def test_the_recent_images_are_remembered_across_batches(model: nn.Module, images: Tensor) -> None:
    sizes = []

    class Sized(tapr.Learner):
        def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
            sizes.append(len(outputs.images))
            return tapr.Loss.mean(outputs.logits[0].square().sum(1))

    def make(given: nn.Module, **common: Any) -> Any:
        return Sized(given, memory=Recent(6), predict="before", **common)

    adapter = make(model)
    for batch in images.chunk(3):
        adapter(batch)
    assert sizes == [3, 6, 6]
    assert torch.equal(adapter.memory.images, images[-6:])
    check_method(make)


def test_restore_returns_single_weights_to_the_source(model: nn.Module, images: Tensor) -> None:
    source = dict(model.named_parameters())
    for rate in (0.0, 0.3, 1.0):
        adapter = learner(model, keepers=[Restore(rate)])
        adapter(images)
        same = torch.cat(
            [(p == source[n]).flatten() for n, p in adapter.model.named_parameters()][2:]
        )
        assert same.float().mean().item() == pytest.approx(rate, abs=0.1)


def test_ensemble_pulls_all_weights_towards_the_source(model: nn.Module, images: Tensor) -> None:
    plain, pulled = learner(model), learner(model, keepers=[Ensemble(0.25)])
    plain(images), pulled(images)
    source = dict(model.named_parameters())
    for (name, a), b in zip(plain.model.named_parameters(), pulled.model.parameters(), strict=True):
        torch.testing.assert_close(b, 0.75 * a + 0.25 * source[name])


def test_recover_starts_again_when_the_loss_is_too_small(model: nn.Module, images: Tensor) -> None:
    for threshold, recovers in ((0.0, False), (100.0, True)):
        adapter = learner(model, keepers=[Recover(threshold)], statistics="source")
        adapter(images)
        same = [
            torch.equal(a, b)
            for a, b in zip(adapter.model.parameters(), model.parameters(), strict=True)
        ]
        assert all(same) == recovers
        assert adapter.keepers[0].average.isinf() == recovers


def test_no_keeper_is_called_without_a_step(model: nn.Module, images: Tensor) -> None:
    class Never(Keeper):
        def forward(self, adapter: Any, loss: tapr.Loss) -> None:
            raise AssertionError("called")

    class Nobody(tapr.Learner):
        def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
            value = outputs.logits[0].square().sum(1)
            return tapr.Loss.mean(value, value < 0)

    prediction = Nobody(model, keepers=[Never()], optimizer="adam").predict(images)
    assert (prediction.steps, prediction.kept, prediction.loss) == (0, 0, None)


def test_the_prior_multiplies_logits_by_the_smoothed_mean(model: nn.Module, images: Tensor) -> None:
    logits = model(images).detach()
    mean = logits.softmax(1).mean(0)
    gamma = max(1 / 8, 1 / 5) / mean.max()
    expected = logits * ((mean + gamma) / (1 + gamma * 5))
    torch.testing.assert_close(tapr.Loop(model, correction=Prior())(images), expected)


def test_the_laplacian_makes_neighbours_agree() -> None:
    features = torch.tensor([[1.0, 0.0], [1.0, 0.01], [1.0, 0.02], [0.0, 1.0]])
    logits = torch.tensor([[2.0, 0.0], [2.0, 0.0], [0.0, 0.5], [0.0, 2.0]])
    outputs = tapr.Outputs(logits[None], torch.zeros(4, 3, 1, 1), features[None])
    assert Laplacian(neighbours=2)(outputs).argmax(1).tolist() == [0, 0, 0, 1]
    assert logits.argmax(1).tolist() == [0, 0, 1, 1]
    alone = tapr.Outputs(logits[None, :1], torch.zeros(1, 3, 1, 1), features[None, :1])
    torch.testing.assert_close(Laplacian()(alone), logits[:1].log_softmax(1))


def test_prototypes_keep_the_surest_of_each_class() -> None:
    part = Prototypes(most=1)
    head = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.eye(2))
    features = torch.tensor([[3.0, 0.0], [0.0, 5.0], [1.0, 0.9]])
    outputs = tapr.Outputs(
        head(features)[None].detach(), torch.zeros(3, 3, 1, 1), features[None], head
    )
    scores = part(outputs)
    assert part.supports.tolist() == [[3.0, 0.0], [0.0, 5.0]]  # surer than the head's own rows
    torch.testing.assert_close(scores, features)


@pytest.mark.parametrize("correction", [Prior, Laplacian, Prototypes])
def test_corrections_keep_the_promises_of_a_method(correction: type[Correction]) -> None:
    check_method(lambda model, **common: tapr.Loop(model, correction=correction(), **common))


def test_votes_are_the_mean_of_the_voters_probabilities(model: nn.Module, images: Tensor) -> None:
    votes = Votes.of("original+flip")
    logits = tapr.adapt(model, "source", votes="original,flip")(images)
    expected = (model(images).softmax(1) + model(images.flip(3)).softmax(1)) / 2
    torch.testing.assert_close(logits.softmax(1), expected)
    assert tapr.adapt(model, "source", votes=votes).passes.forward == 2
    assert torch.equal(tapr.adapt(model, "source", votes=["original"])(images), model(images))


def test_tent_with_votes_answers_before_its_step(model: nn.Module, images: Tensor) -> None:
    adapter = tapr.adapt(model, "tent", votes="original,flip,zoom")
    expected = tapr.adapt(model, "norm", votes="original,flip,zoom")(images)
    prediction = adapter.predict(images)
    torch.testing.assert_close(prediction.logits, expected)
    assert prediction.forward == adapter.passes.forward * len(images) == 4 * len(images)
    assert prediction.steps == 1


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ("flop", "unknown view 'flop'; did you mean 'flip'"),
        ("", "expected at least one view"),
        (3, "expected votes as names of views, got 3"),
    ],
)
def test_wrong_votes_get_a_sentence(model: nn.Module, votes: Any, message: str) -> None:
    with pytest.raises(tapr.TaprError, match=message):
        tapr.adapt(model, "source", votes=votes)


class Recorded(Correction):
    """Keeps what it was given."""

    features = True
    last: tapr.Outputs

    def forward(self, outputs: tapr.Outputs) -> Tensor:
        self.last = outputs
        return outputs.logits[0]


def test_features_are_the_input_of_the_last_linear_layer(model: Any, images: Tensor) -> None:
    adapter: Any = tapr.Loop(model, correction=Recorded())
    adapter(images)
    last = adapter.correction.last
    assert torch.equal(last.features[0], model[:-1](images))
    assert torch.equal(last.head.weight, model[-1].weight)
    assert last.classes == 5


def test_the_head_can_be_named_and_must_be_there(model: Any, images: Tensor) -> None:
    wide = nn.Sequential(model, nn.Linear(5, 5), nn.Linear(5, 5))
    adapter: Any = tapr.Loop(wide, correction=Recorded(), head="0.7")
    adapter(images)
    assert torch.equal(adapter.correction.last.features[0], model[:-1](images))
    with pytest.raises(tapr.TaprError, match=r"expected head to name a linear layer.*'0\.8'"):
        tapr.Loop(wide, correction=Recorded(), head="0.8")
    headless = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(tapr.TaprError, match="expected a model with a linear layer"):
        tapr.Loop(headless, correction=Recorded())


def test_a_head_that_is_called_twice_is_none(model: Any, images: Tensor) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = model[:-1], model[-1]

        def forward(self, x: Tensor) -> Tensor:
            features = self.body(x)
            logits: Tensor = self.head(features) + self.head(features)
            return logits

    with pytest.raises(tapr.TaprError, match="expected the head to be called once"):
        tapr.Loop(Twice(), correction=Recorded())(images)


def test_a_loop_without_an_objective_or_optimiser_gets_a_sentence(model: nn.Module) -> None:
    with pytest.raises(tapr.TaprError, match="expected Learner to have an objective"):
        tapr.Learner(model)


def test_observers_get_every_prediction_until_they_are_removed(
    model: nn.Module, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = tapr.adapt(model, "pest", steps=2)
    seen: list[tapr.Prediction] = []

    def broken(prediction: tapr.Prediction) -> None:
        raise ValueError("no disk")

    adapter.observe(broken)
    stop = adapter.observe(seen.append)
    prediction = adapter.predict(images)
    stop()
    adapter(images)
    assert len(seen) == 1
    assert seen[0] is prediction
    assert set(prediction.timings) == {"views", "learning", "predicting"}
    assert sum(prediction.timings.values()) <= prediction.seconds
    assert (prediction.forward, prediction.backward) == (7 * 8, 6 * 8)
    assert "an observer failed" in caplog.text
