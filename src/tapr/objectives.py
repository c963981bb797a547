"""Objectives: what the model said about a batch in, a loss per image out; no labels anywhere.

Pure functions of logits below, thin modules around them above. An objective may also be a method of
an adapter's own: anything that takes `Outputs` and returns a `Loss`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor, nn

from tapr.errors import InputError
from tapr.registry import Registry
from tapr.types import Loss, Outputs


def log_probabilities(logits: Tensor) -> Tensor:
    """Log-softmax over the last axis, in float32 at least, and finite.

    Below -10,000 a probability is 0 in every floating-point format, so the floor changes no value
    and no gradient; it only turns `0 * -inf` into 0.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact.log_softmax(-1).clamp(min=-1e4)


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy in nats of the softmax of `logits` over the last axis (equation 3).

    >>> round(entropy(torch.zeros(1, 2)).item(), 4)
    0.6931
    """
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(-1)


def divergences(view_logits: Tensor, mixture_floor: float = 0.0) -> Tensor:
    """KL(p_v || mean of the views) for each view: [V, B, K] -> [V, B], in log space.

    `mixture_floor` keeps the mean's probabilities from falling below it, as the released code did.
    """
    log_p = log_probabilities(view_logits)
    log_mean = log_p.logsumexp(0) - math.log(len(view_logits))
    if mixture_floor > 0:
        log_mean = log_mean.clamp(min=math.log(mixture_floor))
    return (log_p.exp() * (log_p - log_mean)).sum(-1)


def jensen_shannon(view_logits: Tensor) -> Tensor:
    """Jensen-Shannon divergence of V views (equation 1): [V, B, K] -> [B], between 0 and log V.

    >>> certain = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    >>> round(jensen_shannon(certain[:, None]).item(), 4)  # two views that exclude each other
    0.6931
    """
    return divergences(view_logits).mean(0).clamp(min=0)  # rounding may fall just below 0


def cross_entropy(target: Tensor, logits: Tensor) -> Tensor:
    """Cross-entropy of a prediction to another one, both as logits [..., K] -> [...].

    >>> round(cross_entropy(torch.zeros(1, 2), torch.zeros(1, 2)).item(), 4)
    0.6931
    """
    return -(log_probabilities(target).exp() * log_probabilities(logits)).sum(-1)


def squared_error(view_logits: Tensor) -> Tensor:
    """Mean over the views of the squared distance to their mean prediction: [V, B, K] -> [B]."""
    p = log_probabilities(view_logits).exp()
    return (p - p.mean(0)).square().sum(-1).mean(0)


class Objective(nn.Module, ABC):
    """Judges what the model said about a batch. Memory, if any, lives in buffers."""

    @abstractmethod
    def forward(self, outputs: Outputs) -> Loss:
        """The loss; it sets its own total, and says which images drive the step."""


class Term(Objective):
    """An objective with one named term in which every image counts."""

    name: str

    @abstractmethod
    def per_image(self, outputs: Outputs) -> Tensor:
        """The loss of each image, [B]."""

    def forward(self, outputs: Outputs) -> Loss:
        """The mean of `per_image`."""
        value = self.per_image(outputs)
        return Loss.mean(value, terms={self.name: value})


class Entropy(Term):
    """Confidence: the entropy of the prediction on the original image; Tent's objective."""

    name = "entropy"

    def per_image(self, outputs: Outputs) -> Tensor:
        """Entropy of view 0, [B]."""
        return entropy(outputs.logits[0])


class JensenShannon(Term):
    """The paper's consistency: the mean over the views of KL to their mean prediction."""

    name = "consistency"

    def per_image(self, outputs: Outputs) -> Tensor:
        """Jensen-Shannon divergence, [B]."""
        return jensen_shannon(outputs.logits)


class SummedKL(Term):
    """The released code's consistency: the KLs summed, the mean prediction kept above 1e-7."""

    name = "consistency"

    def per_image(self, outputs: Outputs) -> Tensor:
        """Sum over the views of KL to the floored mean prediction, [B]."""
        return divergences(outputs.logits, mixture_floor=1e-7).sum(0)


class SquaredError(Term):
    """Consistency by squared error instead of KL."""

    name = "consistency"

    def per_image(self, outputs: Outputs) -> Tensor:
        """Mean squared distance of the views to their mean prediction, [B]."""
        return squared_error(outputs.logits)


class Weighted(Objective):
    """A weighted sum of objectives over the images that all of them keep.

    >>> pest = Weighted([(1.0, JensenShannon()), (1.0, Entropy())])
    >>> images = torch.zeros(2, 3, 8, 8)
    >>> sorted(pest(Outputs(torch.zeros(3, 2, 10), images)).terms)
    ['consistency', 'entropy']
    """

    def __init__(self, parts: Sequence[tuple[float, Objective]]) -> None:
        super().__init__()
        parts = [(weight, part) for weight, part in parts if weight]
        if not parts:
            raise InputError("expected at least one objective with a weight other than 0, got none")
        self.weights = tuple(weight for weight, _ in parts)
        self.parts = nn.ModuleList(part for _, part in parts)

    def forward(self, outputs: Outputs) -> Loss:
        """The sum over the parts."""
        losses: list[Loss] = [part(outputs) for part in self.parts]
        weighted = list(zip(self.weights, losses, strict=True))
        return Loss.mean(
            reduce(torch.add, (w * loss.per_image for w, loss in weighted)),
            reduce(torch.logical_and, (loss.keep for loss in losses)),
            {name: w * term for w, loss in weighted for name, term in loss.terms.items()},
        )

    def extra_repr(self) -> str:
        """The weights, for `repr`."""
        return f"weights={self.weights}"


CONSISTENCIES: Registry[type[Term]] = Registry(
    "consistency",
    {"jensen_shannon": JensenShannon, "summed_kl": SummedKL, "squared_error": SquaredError},
)

__all__ = [
    "CONSISTENCIES",
    "Entropy",
    "JensenShannon",
    "Objective",
    "SquaredError",
    "SummedKL",
    "Term",
    "Weighted",
    "cross_entropy",
    "divergences",
    "entropy",
    "jensen_shannon",
    "log_probabilities",
    "squared_error",
]
