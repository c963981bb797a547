"""RoTTA: learns from a memory of certain, recent images of all classes, with a slow teacher."""

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from tapr.adapters import Learner, Taught, Teacher, Timely
from tapr.adapters.cost import Passes
from tapr.adapters.schedule import Predict
from tapr.augment import Augmentation, Views
from tapr.methods import augmentations
from tapr.models.statistics import Statistics
from tapr.objectives import cross_entropy
from tapr.types import Loss, Outputs


class RoTTA(Learner):
    """Learns from a balanced memory of the stream. Moves normalisation scales; 3 forwards, 1 back.

    Yuan et al., CVPR 2023; for streams whose classes come in runs. The answer is the teacher's,
    with stored statistics. After every `every` images there is a step: the student sees augmented
    images of the memory, the teacher the images themselves. Each has its own statistics, which the
    memory moves by `statistics_momentum`. Old images count less. With more classes than `capacity`
    the memory has at most one image of a class. `released` draws one augmentation for the whole
    memory, as the authors' code does. A large batch may contain several steps: its answer is the
    one made at its start.
    """

    title = "RoTTA"
    paper = "Yuan et al., CVPR 2023"
    presets = {"released": {"augmentation_options": {"batchwide": True}}}

    def __init__(
        self,
        model: nn.Module,
        *,
        capacity: int = 64,
        every: int = 64,
        timeliness: float = 1.0,  # how much age counts against an image in the memory
        doubt: float = 1.0,  # how much entropy counts against it
        augmentation: str | Augmentation = "katana",
        augmentation_options: Mapping[str, Any] = {},
        follow: float = 0.999,  # the share of its values that the teacher keeps after a step
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "norm",
        predict: Predict = "before",
        statistics: str = "robust",
        statistics_momentum: float = 0.05,
        **common: Any,
    ) -> None:
        made = augmentations.make(augmentation, given=augmentation_options)
        policy = Statistics(statistics, momentum=statistics_momentum)
        super().__init__(
            model,
            views=Views(made, 1, original=False),
            teacher=Teacher(model, momentum=follow, statistics=policy),
            memory=Timely(capacity, every, timeliness=timeliness, doubt=doubt),
            correction=Taught(),
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            statistics=statistics,
            statistics_momentum=statistics_momentum,
            **common,
        )
        self.rate = capacity / every  # images learnt from, for each image that comes

    def teach(self, images: Tensor) -> Tensor:
        """The teacher's logits of the memory; its statistics are updated."""
        assert self.teacher is not None
        return self.teacher.logits(images, self, feeding=True)

    def consult(self, images: Tensor) -> Tensor:
        """The teacher's logits of images to predict, with its stored statistics."""
        assert self.teacher is not None
        return self.teacher.logits(images, self)

    def objective(self, outputs: Outputs) -> Loss:
        """The cross-entropy of the student to the teacher, weighted by age."""
        assert outputs.teacher is not None
        assert outputs.weights is not None
        value = outputs.weights * cross_entropy(outputs.teacher, outputs.logits[0])
        return Loss.mean(value, terms={"teacher": value})

    @property
    def passes(self) -> Passes:
        """Passes of the teacher, and of both models on the memory now and then."""
        learnt = math.ceil(self.schedule.steps * self.rate)
        return Passes(1 + 2 * learnt, 0 if self.still else learnt)
