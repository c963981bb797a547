"""Corrections, which change the logits before they become the answer."""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from tapr.errors import InputError
from tapr.registry import Registry
from tapr.types import Outputs


class Correction(nn.Module, ABC):
    """Changes the answer. What it remembers, such as prototypes, must be in buffers."""

    features = False  # whether it needs `Outputs.features` and `Outputs.head`
    student = True  # whether it needs the model's own logits; if not, only the teacher is run

    @abstractmethod
    def forward(self, outputs: Outputs) -> Tensor:
        """The logits [B, K] to answer with; `outputs.logits` is [1, B, K]."""


class Prior(Correction):
    """Multiplies the logits by the batch's smoothed mean prediction (ROID's released code)."""

    def forward(self, outputs: Outputs) -> Tensor:
        """The logits, raised for classes that are frequent in the batch, lowered for others."""
        return outputs.logits[0] * _frequencies(outputs.logits[0])


class ProbabilityPrior(Correction):
    """Multiplies the probabilities by the batch's smoothed mean prediction (ROID's paper)."""

    def forward(self, outputs: Outputs) -> Tensor:
        """Log-probabilities, up to a constant."""
        return outputs.logits[0].log_softmax(1) + _frequencies(outputs.logits[0]).log()


def _frequencies(logits: Tensor) -> Tensor:
    """The frequency of each class in the batch, [K]; a smaller batch is smoothed more."""
    images, classes = logits.shape
    mean = logits.softmax(1).mean(0)
    smooth = max(1 / images, 1 / classes) / mean.max()
    return (mean + smooth) / (1 + smooth * classes)


PRIORS: Registry[Callable[[], Correction | None]] = Registry(
    "prior correction",
    {"probabilities": ProbabilityPrior, "logits": Prior, "none": lambda: None},
)


class Taught(Correction):
    """Answers with the teacher's logits, alone or added to the model's."""

    def __init__(self, *, together: bool = False) -> None:
        super().__init__()
        self.student = together

    def forward(self, outputs: Outputs) -> Tensor:
        """The teacher's logits, or the sum of both."""
        assert outputs.teacher is not None
        return outputs.teacher + outputs.logits[0] if self.student else outputs.teacher


class Laplacian(Correction):
    """Pulls the answers of neighbours in feature space together (LAME).

    `kernel` is "knn" (1 for the `neighbours` nearest other images), "rbf" (a Gaussian as wide as
    the mean distance to the `neighbours`-th nearest, the image itself among them) or "linear", the
    inner products. Rows of "rbf" and "linear" are not normalised: their pull grows with the batch.
    """

    features = True

    def __init__(
        self,
        neighbours: int = 5,
        rounds: int = 100,
        *,
        kernel: str = "knn",
        symmetric: bool = False,
        weight: float = 1.0,
    ) -> None:
        super().__init__()
        if isinstance(neighbours, bool) or not isinstance(neighbours, int) or neighbours < 1:
            raise InputError(f"expected 1 neighbour or more, got {neighbours!r}")
        self.neighbours, self.rounds, self.weight = neighbours, rounds, weight
        self.kernel, self.symmetric = KERNELS[kernel], symmetric

    def forward(self, outputs: Outputs) -> Tensor:
        """Log-probabilities after the answers have settled."""
        assert outputs.features is not None
        logits, features = outputs.logits[0], outputs.features[0]
        exact = torch.promote_types(logits.dtype, torch.float32)
        unary = -(logits.to(exact).softmax(1) + 1e-10).log()
        kernel = self.kernel(normalize(features.to(exact), dim=1), self.neighbours)
        if self.symmetric:
            kernel = (kernel + kernel.T) / 2
        answer = self._settled(unary, self.weight * kernel)
        return answer.clamp(min=1e-20).log().to(logits.dtype)

    def _settled(self, unary: Tensor, kernel: Tensor) -> Tensor:
        """The fixed point of Y = softmax(-unary + kernel Y), or Y after `rounds` iterations."""
        answer, energy = (-unary).softmax(1), float("inf")
        for number in range(self.rounds):
            pull = kernel @ answer
            answer = (pull - unary).softmax(1)
            before = energy
            energy = (answer * (unary - pull + answer.clamp(min=1e-20).log())).sum().item()
            if number > 1 and abs(energy - before) <= 1e-8 * abs(before):
                break
        return answer


def knn(features: Tensor, neighbours: int) -> Tensor:
    """1 for each of the nearest other images, 0 elsewhere; a small batch has fewer of them."""
    kernel = features.new_zeros(len(features), len(features))
    count = min(neighbours, len(features) - 1)
    if count:
        distances = _distances(features).fill_diagonal_(float("inf"))
        kernel.scatter_(1, distances.topk(count, largest=False).indices, 1.0)
    return kernel


def rbf(features: Tensor, neighbours: int) -> Tensor:
    """A Gaussian of the distance, 1 on the diagonal."""
    distances = _distances(features)
    nearest = distances.topk(min(neighbours, len(features)), largest=False).values
    width = nearest[:, -1].mean()
    return (-distances.square() / (2 * width.square())).nan_to_num(nan=0.0).exp()  # 0 / 0: equal


def linear(features: Tensor, neighbours: int) -> Tensor:
    """Inner products, 1 on the diagonal."""
    return features @ features.T


def _distances(features: Tensor) -> Tensor:
    """Distances that are exactly 0 between equal features; the faster matrix product is not."""
    return torch.cdist(features, features, compute_mode="donot_use_mm_for_euclid_dist")


KERNELS: Registry[Callable[[Tensor, int], Tensor]] = Registry(
    "kernel", {"knn": knn, "rbf": rbf, "linear": linear}
)


class Prototypes(Correction):
    """Classifies by similarity to the most certain features seen of each class (T3A).

    It keeps the `most` supports with the lowest entropy of each class; None keeps all. With -1 it
    drops the least certain support of each class at every batch.
    """

    features = True
    supports: Tensor  # [N, D]
    classes: Tensor  # [N]
    entropies: Tensor  # [N]

    def __init__(self, most: int | None = 20) -> None:
        super().__init__()
        whole = isinstance(most, int) and not isinstance(most, bool)
        if most is not None and not (whole and (1 <= most < 2**63 or most == -1)):
            raise InputError(
                f"expected 1 support of a class or more, or None for all, got {most!r}"
            )
        self.most = most
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
        prototypes = members.T @ normalize(self.supports, dim=1)
        return features @ normalize(prototypes, dim=1).T

    def _judged(self, features: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_p = logits.detach().log_softmax(1)
        entropies = -(log_p.exp() * log_p).sum(1)
        finite = entropies.isfinite() & features.isfinite().all(1)  # others would spoil a class
        return features.detach()[finite].clone(), log_p.argmax(1)[finite], entropies[finite]

    def _surest(self, classes: Tensor, entropies: Tensor) -> Tensor:
        """Which supports to keep: the `most` of each class with the lowest entropy."""
        order = entropies.argsort(stable=True)
        if self.most is None:
            return order.sort().values
        order = order[classes[order].argsort(stable=True)]  # by class, then by entropy
        grouped = classes[order]
        place = torch.arange(len(order), device=order.device)
        first = torch.searchsorted(grouped, grouped)
        last = torch.searchsorted(grouped, grouped, right=True) - 1
        kept = place < last if self.most < 0 else place - first < self.most
        return order[kept].sort().values
