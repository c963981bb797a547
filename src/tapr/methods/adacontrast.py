"""AdaContrast: pseudo-labels by a vote of near features, and contrastive learning."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from tapr import rng
from tapr.adapters import Keeper, Learner, Loop, Needs, Teacher
from tapr.adapters.cost import Passes
from tapr.augment import Augmentation, Crop, MoCo, Views
from tapr.errors import InputError
from tapr.models import head as heads
from tapr.models.statistics import Statistics
from tapr.objectives import log_probabilities
from tapr.registry import Registry
from tapr.types import Loss, Outputs

STARTS = Registry("queue_start", {name: name for name in ("random", "empty")})


class AdaContrast(Learner):
    """Learns what near features agree on, and by contrast. Moves all; 5 forwards, 1 backward.

    Chen et al., CVPR 2022. The label of an image is that of the mean prediction of the 10 nearest
    features in a bank, which a slow copy of the model fills; for the first `plain_first` images it
    is the model's own. The loss is the sum of the cross-entropy of a strong view to the label, a
    contrast between two strong views against a queue of earlier ones with other labels, and the
    negative entropy of the mean prediction. The slow copy follows before its forwards. The answer
    is the student's, after the step, with stored statistics, which adapting forwards move by 0.1.

    The features are the input of the last linear layer, without the authors' bottleneck. The queue
    starts with random unit vectors and labels, as MoCo's does, or `empty`: the fact sheet that we
    follow does not say which.
    """

    title = "AdaContrast"
    paper = "Chen et al., CVPR 2022"
    needs = Needs(features="whose neighbours give the labels")

    queue: Tensor  # [Q, D]
    queue_labels: Tensor  # [Q]
    bank: Tensor  # [N, D]
    bank_predictions: Tensor | None  # [N, K]
    seen: Tensor

    def __init__(
        self,
        model: nn.Module,
        *,
        neighbours: int = 10,
        plain_first: int = 1024,
        remembered: int = 16_384,  # features in the bank, and in the queue
        queue_start: str = "random",  # or "empty"
        contrast_temperature: float = 0.07,
        weak: Augmentation | None = None,  # a crop and a flip
        strong: Augmentation | None = None,  # MoCo's
        follow: float = 0.999,  # the share of its values that the slow copy keeps
        optimizer: Any = "nesterov",
        lr: float = 2e-4,
        weight_decay: float = 1e-4,
        statistics: str = "running",
        statistics_momentum: float = 0.1,
        **common: Any,
    ) -> None:
        for name, value in (("neighbours", neighbours), ("remembered", remembered)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"expected {name} of 1 or more, got {value!r}")
        strong = strong or MoCo()
        super().__init__(
            model,
            views=Views(strong, 1, original=False),
            keepers=[Remember()],
            optimizer=optimizer,
            lr=lr,
            weight_decay=weight_decay,
            statistics=statistics,
            statistics_momentum=statistics_momentum,
            **common,
        )
        policy = Statistics(statistics, momentum=statistics_momentum)
        self.slow = Teacher(model, momentum=follow, statistics=policy)
        self.weak, self.strong = weak or Crop(), strong
        self.neighbours, self.plain_first, self.remembered = neighbours, plain_first, remembered
        self.temperature = contrast_temperature
        self._weak_views: Tensor | None = None
        layer = self._layer
        assert layer is not None
        size = remembered if STARTS[queue_start] == "random" else 0
        generator = rng.generator(common.get("seed", 0), "queue")
        drawn = torch.randn(size, layer.in_features, generator=generator, dtype=torch.float64)
        labels = torch.randint(layer.out_features, (size,), generator=generator)
        self.register_buffer("queue", normalize(drawn, dim=1).to(layer.weight))
        self.register_buffer("queue_labels", labels.to(layer.weight.device))
        self.register_buffer("bank", layer.weight.detach().new_zeros(0, layer.in_features))
        self.register_buffer("bank_predictions", None)
        self.register_buffer("seen", torch.tensor(0))

    @torch.no_grad()
    def teach(self, images: Tensor) -> Tensor:
        """The mean prediction of neighbours in the bank, as logits; at first the model's own."""
        weak = self._weak_views = self.weak(images, self.generator)
        with self.norms.adapting(1):
            logits, features = self._forward("adapting", weak, 1)
        if int(self.seen) < self.plain_first or self.bank_predictions is None:
            return logits[0]
        assert features is not None
        near = normalize(features[0], dim=1) @ self.bank.T
        nearest = near.topk(min(self.neighbours, len(self.bank)), dim=1).indices
        return self.bank_predictions[nearest].mean(1).log()

    def objective(self, outputs: Outputs) -> Loss:
        """The cross-entropy to the labels, the contrast, and the negative entropy."""
        assert outputs.teacher is not None
        assert outputs.features is not None
        student, labels = outputs.logits[0], outputs.teacher.argmax(1)
        self.slow.follow(self.model)
        keys, _ = self.slow_features(self.strong(outputs.images, self.generator))
        labelled = cross_entropy(student, labels, reduction="none")
        contrast = self._contrast(outputs.features[0], keys, labels)
        mean = log_probabilities(student).exp().mean(0)
        spread = (mean * mean.clamp(min=1e-30).log()).sum().expand_as(labelled)
        self.queue = torch.cat([self.queue, keys])[-self.remembered :]
        self.queue_labels = torch.cat([self.queue_labels, labels])[-self.remembered :]
        terms = {"labels": labelled, "contrast": contrast, "spread": spread}
        return Loss.mean(labelled + contrast + spread, terms=terms)

    @torch.no_grad()
    def slow_features(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The slow copy's features of images, of length 1, and its logits."""
        assert self.head is not None
        layer = self.slow.model.get_submodule(self.head)
        assert isinstance(layer, nn.Linear)
        with heads.features(layer) as seen:
            logits = self.slow.logits(images, self, feeding=True)
        return normalize(heads.only(seen, len(images)), dim=1), logits

    @torch.no_grad()
    def remember(self) -> None:
        """Put the slow copy's features and predictions of the weak views into the bank."""
        assert self._weak_views is not None
        features, logits = self.slow_features(self._weak_views)
        known = logits.new_zeros(0, logits.shape[1])
        known = known if self.bank_predictions is None else self.bank_predictions
        self.bank = torch.cat([self.bank, features])[-self.remembered :]
        self.bank_predictions = torch.cat([known, logits.softmax(1)])[-self.remembered :]
        self.seen += len(features)
        self._weak_views = None

    def _contrast(self, features: Tensor, keys: Tensor, labels: Tensor) -> Tensor:
        """The cross-entropy, [B], of finding the own key among the queue's of other labels."""
        queries = normalize(features, dim=1)
        own = (queries * keys).sum(1, keepdim=True)
        others = queries @ self.queue.T
        others = others.masked_fill(labels[:, None] == self.queue_labels, float("-inf"))
        return -(torch.cat([own, others], 1) / self.temperature).log_softmax(1)[:, 0]

    @property
    def passes(self) -> Passes:
        """Passes of the student, of its weak view, and two of the slow copy."""
        forward, backward = super().passes
        return Passes(forward + 3 * self.schedule.steps, backward)


class Remember(Keeper):
    """Adds the batch to the bank after a step."""

    def forward(self, adapter: Loop, loss: Loss) -> None:
        """Call `remember` of the method."""
        assert isinstance(adapter, AdaContrast)
        adapter.remember()
