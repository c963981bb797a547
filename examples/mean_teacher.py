"""A mean teacher: a second copy of the model, which follows slowly, teaches the first.

Run it with `python examples/mean_teacher.py`.
"""

from functools import partial
from typing import Any

import torch
from torch import nn

import tapr
from tapr.adapters import Restore, Teacher
from tapr.models.statistics import Statistics
from tapr.objectives import log_probabilities


class MeanTeacher(tapr.Learner):
    """Learns what its own moving average says. Moves all parameters; 3 forwards, 1 backward."""

    title = "mean teacher"

    def __init__(
        self,
        model: nn.Module,
        *,
        follow: float = 0.99,  # what the teacher keeps of its own after a step
        restore: float = 0.01,  # how many weights return to the source after a step
        **common: Any,
    ) -> None:
        super().__init__(
            model,
            teacher=Teacher(model, momentum=follow, statistics=Statistics("batch")),
            keepers=[Restore(restore)],
            **common,
        )

    def objective(self, outputs: tapr.Outputs) -> tapr.Loss:
        """The cross-entropy to the teacher's answer."""
        assert outputs.teacher is not None
        value = -(outputs.teacher.softmax(1) * log_probabilities(outputs.logits[0])).sum(1)
        return tapr.Loss.mean(value, terms={"teacher": value})


if __name__ == "__main__":
    adapter = tapr.adapt(tapr.models.load("digits-small"), "mean_teacher:MeanTeacher", lr=1e-3)
    digits = torch.from_numpy(tapr.datasets.load("digits").images[:300])  # handwritten ones
    for images in (digits.permute(0, 3, 1, 2).float() / 255).chunk(3):
        print(f"loss {adapter.predict(images).loss:.3f}, against the teacher")
    tapr.testing.check_method(partial(tapr.adapt, method="mean_teacher:MeanTeacher"))
    print("it keeps every promise of a method")
