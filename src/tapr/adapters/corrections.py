"""Corrections: what is done to the logits before they are the answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tapr.registry import Registry
from tapr.types import Outputs


class Correction(nn.Module, ABC):
    """Changes the answer. Memory, such as prototypes, lives in buffers."""

    features = False  # are `Outputs.features` and `Outputs.head` needed?

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """The logits [B, K] to answer with; `outputs.logits` is [1, B, K]."""


class Prior(Correction):
    """Multiplies the logits by the batch's smoothed mean prediction (ROID's released code)."""

    def forward(self, outputs: Outputs) -> Tensor:
        """The logits of classes that the batch has more of gain, those of the others lose."""
        return outputs.logits[0] * _frequencies(outputs.logits[0])


class ProbabilityPrior(Correction):
    """Multiplies the probabilities by the batch's smoothed mean prediction (ROID's paper)."""

    def forward(self, outputs: Outputs) -> Tensor:
        """Log-probabilities, up to a constant."""
        return outputs.logits[0].log_softmax(1) + _frequencies(outputs.logits[0]).log()


def _frequencies(logits: Tensor) -> Tensor:
    """How often the batch has each class, smoothed the more, the smaller the batch, [K]."""
    images, classes = logits.shape
    mean = logits.softmax(1).mean(0)
    smooth = max(1 / images, 1 / classes) / mean.max()
    return (mean + smooth) / (1 + smooth * classes)


PRIORS: Registry[Callable[[], Correction | None]] = Registry(
    "prior correction",
    {"probabilities": ProbabilityPrior, "logits": Prior, "none": lambda: None},
)


class Laplacian(Correction):
    """Pulls the answers of neighbours in feature space together (LAME, kNN kernel)."""

    features = True

    def __init__(self, neighbours: int = 5, rounds: int = 100) -> None:
        super().__init__()
        self.neighbours, self.rounds = neighbours, rounds

    def forward(self, outputs: Outputs) -> Tensor:
        """Log-probabilities after the answers have settled."""
        assert outputs.features is not None
        unary = outputs.logits[0].log_softmax(1)
        kernel = self._kernel(nn.functional.normalize(outputs.features[0].float(), dim=1))
        answer, energy = unary.softmax(1), float("inf")
        for number in range(self.rounds):
            pull = kernel.to(unary) @ answer
            answer = (unary + pull).softmax(1)
            before = energy
            settled = answer * (answer.clamp(min=1e-20).log() - unary - pull)
            energy = settled.sum().item()
            if number > 2 and abs(energy - before) <= 1e-8 * abs(before):
                break
        return answer.clamp(min=1e-20).log()

    def _kernel(self, features: Tensor) -> Tensor:
        """1 for each of the nearest other images, 0 elsewhere."""
        kernel = features.new_zeros(len(features), len(features))
        count = min(self.neighbours, len(features) - 1)
        if count:
            distances = torch.cdist(features, features).fill_diagonal_(float("inf"))
            kernel.scatter_(1, distances.topk(count, largest=False).indices, 1.0)
        return kernel


class Prototypes(Correction):
    """Classifies by similarity to the surest features seen of each class (T3A)."""

    features = True
    supports: Tensor  # [N, D]
    classes: Tensor  # [N]
    entropies: Tensor  # [N]

    def __init__(self, most: int = 20) -> None:
        super().__init__()
        self.most = most  # supports of a class
        for name in ("supports", "classes", "entropies"):
            self.register_buffer(name, None)

    def forward(self, outputs: Outputs) -> Tensor:
        """Scores by the prototypes, those of this batch included."""
        assert outputs.features is not None
        assert outputs.head is not None
        if self.supports is None:
            rows = outputs.head.weight.detach()
            self.supports, self.classes, self.entropies = self._judged(rows, outputs.head(rows))
        features = outputs.features[0]
        new = self._judged(features, outputs.logits[0])
        old = self.supports, self.classes, self.entropies
        merged = [torch.cat(pair) for pair in zip(old, new, strict=True)]
        kept = self._surest(merged[1], merged[2])
        self.supports, self.classes, self.entropies = (part[kept] for part in merged)
        members = nn.functional.one_hot(self.classes, outputs.classes).to(features)
        prototypes = members.T @ nn.functional.normalize(self.supports, dim=1)
        return features @ nn.functional.normalize(prototypes, dim=1).T

    def _judged(self, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_p = logits.detach().log_softmax(1)
        return features.detach().clone(), log_p.argmax(1), -(log_p.exp() * log_p).sum(1)

    def _surest(self, classes: Tensor, entropies: Tensor) -> Tensor:
        """Which supports to keep: the `most` of each class with the lowest entropy."""
        order = entropies.argsort(stable=True)
        order = order[classes[order].argsort(stable=True)]  # by class, then by entropy
        grouped = classes[order]
        first = torch.searchsorted(grouped, grouped)
        place = torch.arange(len(order), device=order.device) - first
        return order[place < self.most].sort().values
