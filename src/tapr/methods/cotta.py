"""CoTTA: learns from a slow teacher's mean answer over many views; some weights are restored."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tapr.adapters import Learner, Restore, Taught, Teacher
from tapr.adapters.cost import Passes
from tapr.adapters.schedule import Predict
from tapr.augment import Augmentation
from tapr.errors import InputError
from tapr.methods import augmentations
from tapr.methods import source_images as given
from tapr.models.statistics import Statistics
from tapr.objectives import (
    cross_entropy,
    for_classes,
    log_probabilities,
    symmetric_cross_entropy,
)
from tapr.registry import Registry
from tapr.types import Loss, Outputs

# Views are used below this confidence of the source model, by number of classes.
CERTAINTIES: Mapping[int, float] = {10: 0.92, 100: 0.72, 1000: 0.1}
GATES = Registry("gate", {name: name for name in ("image", "batch")})
AVERAGES = Registry("average", {name: name for name in ("probabilities", "logits")})


class CoTTA(Learner):
    """Learns a slow teacher's mean over 32 views. Moves all parameters; 35 forwards, 1 backward.

    Wang et al., CVPR 2022. The answer is the teacher's, before the step. Where the source model
    (the anchor) is less confident than `certainty`, the teacher's answer is its mean over the
    views, else that on the image itself. After a step the teacher follows, then each weight returns
    to its source value with probability `restore`; the optimiser's memory does not. All three
    models, also the anchor, use the batch's own statistics. It needs images in [0, 1], not
    normalised.

    `certainty` defaults to the published one for the nearest number of classes. If `source_images`
    are given (a tensor, batches of images, or the name of a data set), the authors' rule is used
    instead: the 5 % quantile of the source model's confidence on at most 2,000 of them, minus 0.05.

    The paper gates each image and averages probabilities; the authors' code (`released`) gates the
    batch by its mean confidence, averages logits, and draws one augmentation for a whole batch.
    `imagenet` is that code's other configuration: symmetric cross-entropy, Nesterov SGD, a smaller
    `restore`. Here views are drawn only if an image needs them. On long streams and with small
    batches CoTTA is known to collapse.
    """

    title = "CoTTA"
    paper = "Wang et al., CVPR 2022"
    _released = {"gate": "batch", "average": "logits", "augmentation_options": {"batchwide": True}}
    presets = {
        "released": _released,
        "imagenet": {
            **_released,
            "symmetric": True,
            "optimizer": "nesterov",
            "lr": 0.01,
            "restore": 0.001,
        },
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        views: int = 32,
        augmentation: str | Augmentation = "katana",
        augmentation_options: Mapping[str, Any] = {},
        certainty: float | None = None,
        source_images: Any = None,  # they determine `certainty`, if it is not given
        gate: str = "image",  # or "batch"
        average: str = "probabilities",  # or "logits"
        symmetric: bool = False,  # whether the cross-entropy is taken both ways
        follow: float = 0.999,  # the share of its values that the teacher keeps after a step
        restore: float = 0.01,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        if not isinstance(views, int) or views < 1:
            raise InputError(f"expected 1 view or more, got {views!r}")
        statistics = Statistics("batch")
        super().__init__(
            model,
            teacher=Teacher(model, momentum=follow, statistics=statistics),
            keepers=[Restore(restore)],
            correction=Taught(),
            optimizer=optimizer,
            lr=lr,
            predict=predict,
            **common,
        )
        self.anchor = Teacher(model, momentum=1.0, statistics=statistics)
        self.frozen |= {f"anchor.{name}" for name, _ in self.anchor.named_parameters()}
        self.augmentation = augmentations.make(augmentation, given=augmentation_options)
        self.view_count, self.certainty, self.symmetric = views, certainty, symmetric
        self.gate, self.average = GATES[gate], AVERAGES[average]
        if certainty is None and source_images is not None:
            self.certainty = self._by_the_rule(source_images)

    @torch.no_grad()
    def teach(self, images: Tensor) -> Tensor:
        """The teacher's logits, or its mean over views where the source model is not certain."""
        assert self.teacher is not None
        source = self.anchor.logits(images, self)
        confidence = source.softmax(1).amax(1)
        if self.gate == "batch":
            confidence = confidence.mean().expand(len(images))
        unsure = confidence < for_classes(CERTAINTIES, source.shape[1], self.certainty)
        plain = self.teacher.logits(images, self) if not unsure.all() else source
        if not unsure.any():
            return plain
        return torch.where(unsure[:, None], self._over_views(images), plain)

    def objective(self, outputs: Outputs) -> Loss:
        """The cross-entropy of the student to the teacher."""
        assert outputs.teacher is not None
        distance = symmetric_cross_entropy if self.symmetric else cross_entropy
        value = distance(outputs.teacher, outputs.logits[0])
        return Loss.mean(value, terms={"teacher": value})

    @torch.no_grad()
    def _by_the_rule(self, source_images: Any) -> float:
        parts = given.batches(source_images, self.model, count=2000, size=200, split="train")
        said = [self.logits(part).softmax(1).amax(1) for part in parts]
        return float(torch.cat(said).double().quantile(0.05)) - 0.05

    def _over_views(self, images: Tensor) -> Tensor:
        assert self.teacher is not None
        said = []
        for _ in range(self.view_count):
            view = self.augmentation(images, self.generator)
            said.append(self.teacher.logits(view, self))
        if self.average == "logits":
            return torch.stack(said).mean(0)
        together = log_probabilities(torch.stack(said)).logsumexp(0) - math.log(len(said))
        return together.to(said[0].dtype)

    @property
    def passes(self) -> Passes:
        """Passes of the student, of the anchor, and of the teacher on the images and all views."""
        forward, backward = super().passes
        taught = self.schedule.steps + (self._answers_first or self.schedule.predict == "after")
        return Passes(forward + taught * (1 + self.view_count), backward)
