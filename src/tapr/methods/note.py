"""NOTE: instance-aware batch norm, and a memory with as many images of each class."""

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tapr.adapters import Balanced, Latest, Learner, Needs, Shelved
from tapr.adapters.cost import Passes
from tapr.adapters.schedule import Predict
from tapr.objectives import log_probabilities
from tapr.registry import Registry
from tapr.types import Loss, Outputs, Prediction

log = logging.getLogger("tapr")
MEMORIES: Registry[Callable[..., Shelved]] = Registry(
    "memory",
    {"balanced": Balanced, "latest": lambda capacity, every, seed: Latest(capacity, every)},
)


class NOTE(Learner):
    """Lowers the entropy of a balanced memory. Moves batch-norm scales; 2 forwards, 1 backward.

    Gong et al., NeurIPS 2022; made for streams whose classes come in runs. Batch norm corrects its
    statistics for each image that is `deviations` standard deviations away (IABN). **The source
    model must have been trained with such layers**: a model with plain batch norm is adapted as
    well, but the published figures do not hold for it, and the log has a warning before the first
    batch unless `trained_so`. Every image is predicted before it is learnt from: a batch is cut
    where a step is due, after every `every` images.

    `released` divides the entropy by the number of classes, as the authors' code does. `iid` is
    their variant for mixed streams: the latest images, the batch's own statistics, and ten times
    the learning rate.
    """

    title = "NOTE"
    paper = "Gong et al., NeurIPS 2022"
    needs = Needs(batch_norm="which becomes instance-aware (the model should have been trained so)")
    presets = {
        "released": {"divided": True},
        "iid": {"memory": "latest", "statistics": "instance-batch", "lr": 1e-3},
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        memory: str = "balanced",  # or "latest"
        capacity: int = 64,
        every: int = 64,
        deviations: float = 4.0,
        divided: bool = False,  # whether the entropy is divided by the number of classes
        trained_so: bool = False,  # whether the model was trained with instance-aware batch norm
        optimizer: Any = "adam",
        lr: float = 1e-4,
        scope: Any = "norm",
        predict: Predict = "before",
        statistics: str = "instance",
        statistics_momentum: float = 0.01,
        **common: Any,
    ) -> None:
        super().__init__(
            model,
            memory=MEMORIES[memory](capacity, every, seed=common.get("seed", 0)),
            optimizer=optimizer,
            lr=lr,
            scope=scope,
            predict=predict,
            statistics=statistics,
            statistics_momentum=statistics_momentum,
            **common,
        )
        options = self.norms.options._replace(deviations=deviations)
        self.norms = options.policy(self.model)
        self.divided, self.trained_so, self.rate = divided, trained_so, capacity / every

    def adapt(self, images: Tensor) -> Prediction:
        """Predict and learn, part by part: a part ends where a step is due."""
        assert isinstance(self.memory, Shelved)
        due = self.memory.until_due()
        parts = [images[:due], *torch.split(images[due:], self.memory.every)]
        said: list[Prediction] = []
        for part in parts:
            if len(part):
                if said:
                    self.guard.mark(self)
                said.append(super().adapt(part))
        return _joined(said)

    def objective(self, outputs: Outputs) -> Loss:
        """The entropy of the images in the memory."""
        p = log_probabilities(outputs.logits[0]).exp()
        value = -(p * (p + 1e-6).log()).sum(1) / (outputs.classes if self.divided else 1)
        return Loss.mean(value, terms={"entropy": value})

    def _complete(self) -> None:
        super()._complete()
        if not self.trained_so:
            log.warning(
                "NOTE expects a model trained with instance-aware batch norm; if yours was, pass"
                " trained_so=True, else expect less than the published gain"
            )

    @property
    def passes(self) -> Passes:
        """Passes to predict, and those of the memory now and then."""
        learnt = math.ceil(self.schedule.steps * self.rate)
        return Passes(self.votes.count + learnt, 0 if self.still else learnt)


def _joined(said: list[Prediction]) -> Prediction:
    """The prediction of a batch whose parts were predicted one after the other."""
    learnt = [each for each in said if each.loss is not None]
    last = learnt[-1] if learnt else said[-1]
    timings: dict[str, float] = {}
    for each in said:
        for name, seconds in each.timings.items():
            timings[name] = timings.get(name, 0.0) + seconds
    logits = torch.cat([each.logits for each in said])
    steps = sum(each.steps for each in said)
    return last._replace(logits=logits, steps=steps, timings=timings)
