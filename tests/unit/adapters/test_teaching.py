"""Who teaches whom, and when: teachers that answer, views without the original, optimisers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tapr
from tapr.adapters import Restore, Taught, Teacher
from tapr.augment import Identity, Views
from tapr.models.statistics import Statistics
from tapr.objectives import Entropy


def learner(model: nn.Module, **options: Any) -> Any:
    return tapr.Learner(model, Entropy(), lr=0.1, predict="before", **options)


def test_a_teacher_follows_the_step_before_weights_return(model: nn.Module, images: Tensor) -> None:
    """With every weight returned, only the teacher remembers the step."""
    adapter = learner(model, teacher=Teacher(model, momentum=0.5), keepers=[Restore(1.0)])
    adapter(images)
    source = dict(model.named_parameters())
    for name, parameter in adapter.model.named_parameters():
        assert torch.equal(parameter, source[name])
    assert not torch.equal(adapter.teacher.model[7].weight, source["7.weight"])


@pytest.mark.parametrize("predict", ["before", "after"])
def test_a_teachers_answer_needs_no_forward_of_the_student(
    model: nn.Module, images: Tensor, predict: Any
) -> None:
    teacher = Teacher(model, statistics=Statistics("batch"))
    adapter = tapr.Learner(model, Entropy(), predict=predict, teacher=teacher, correction=Taught())
    expected = teacher.logits(images, adapter)
    prediction = adapter.predict(images)
    if predict == "before":
        torch.testing.assert_close(prediction.logits, expected)
    forwards = {"before": 2, "after": 3}[predict]
    assert prediction.forward == forwards * len(images) == adapter.passes.forward * len(images)


def test_both_answer_together(model: nn.Module, images: Tensor) -> None:
    adapter = learner(model, teacher=Teacher(model), correction=Taught(together=True))
    said = adapter.model.eval()(images)
    student = tapr.adapt(model, "norm")(images)
    torch.testing.assert_close(adapter(images), said.detach() + student)


def test_a_feeding_teacher_moves_its_statistics(model: Any, images: Tensor) -> None:
    teacher = Teacher(model, statistics=Statistics("running", momentum=0.3))
    adapter = learner(model, teacher=teacher)
    teacher.logits(images, adapter)
    assert torch.equal(adapter.teacher.model[1].running_mean, model[1].running_mean)
    teacher.logits(images, adapter, feeding=True)
    assert not torch.equal(adapter.teacher.model[1].running_mean, model[1].running_mean)


def test_views_may_leave_the_original_out(images: Tensor) -> None:
    views = Views(Identity(), 3, original=False)
    assert views.together == 3
    assert views(images, torch.Generator()).shape == (24, *images.shape[1:])
    assert "original=False" in repr(views)
    with pytest.raises(tapr.TaprError, match="expected count of views >= 1, got 0"):
        Views(Identity(), 0, original=False)


@pytest.mark.parametrize(
    ("name", "kind", "option"),
    [("nesterov", torch.optim.SGD, "nesterov"), ("adamw", torch.optim.AdamW, "weight_decay")],
)
def test_optimisers_by_name(model: nn.Module, name: str, kind: Any, option: str) -> None:
    adapter = learner(model, optimizer=name, weight_decay=0.1)
    assert isinstance(adapter.optimizer, kind)
    assert adapter.optimizer.param_groups[0][option]


def test_every_view_has_statistics_of_its_own(model: Any, images: Tensor) -> None:
    both = torch.cat([images, images * 0.3])
    with Statistics("views").policy(model).adapting(2):
        together = model(both)
    with Statistics("batch").policy(model).adapting(1):
        apart = torch.cat([model(part) for part in both.chunk(2)])
    torch.testing.assert_close(together, apart)


@pytest.mark.parametrize("deviations", [-1, "many"])
def test_wrong_deviations_get_a_sentence(model: nn.Module, deviations: Any) -> None:
    with pytest.raises(tapr.TaprError, match="expected deviations of 0 or more"):
        tapr.adapt(model, "note", deviations=deviations)
