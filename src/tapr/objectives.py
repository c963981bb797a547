"""Objectives: what the model said about a batch in, a loss per image out; no labels anywhere.

Pure functions of logits below, thin modules around them above. An objective may also be a method of
an adapter's own: anything that takes `Outputs` and returns a `Loss`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce

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


def soft_likelihood_ratio(logits: Tensor) -> Tensor:
    """Minus the expected log odds of the classes, [..., K] -> [...]: it does not saturate.

    Probabilities are cut at 0.99, above which a class has no gradient (ROID).

    >>> round(soft_likelihood_ratio(torch.zeros(1, 10)).item(), 5)
    2.19713
    """
    p = log_probabilities(logits).exp().clamp(max=0.99)
    return -(p * (p / (1 - p) + 1e-5).log()).sum(-1)


def symmetric_cross_entropy(logits: Tensor, others: Tensor) -> Tensor:
    """Half of the cross-entropy each way between two predictions, [..., K] -> [...].

    Of a prediction with itself it is the entropy.
    """
    one, two = log_probabilities(logits), log_probabilities(others)
    return -0.5 * (one.exp() * two + two.exp() * one).sum(-1)


def generalised_cross_entropy(logits: Tensor, q: float = 0.8) -> Tensor:
    """(1 - p ** q) / q of the likeliest class, [..., K] -> [...]: a bounded self-training loss.

    >>> round(generalised_cross_entropy(torch.zeros(1, 2)).item(), 5)
    0.53206
    """
    log_p = log_probabilities(logits).amax(-1)
    return (1 - (q * log_p).exp()) / q


def come(logits: Tensor, mass: int | None = None) -> Tensor:
    """Entropy of the classes and of "I do not know", [..., K] -> [...] (COME, ICLR 2025).

    "I do not know" has the weight of `mass` classes of logit 0: as many as there are, if None; the
    authors' code has 1,000 whatever the model. The length of the logits has no gradient.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    length = exact.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(exact.dtype).tiny)
    directed = exact / length * length.detach()
    unknown = directed.new_full((*directed.shape[:-1], 1), math.log(mass or directed.shape[-1]))
    p = torch.cat([directed, unknown], -1).softmax(-1) + 1e-7
    return -(p * p.log()).sum(-1)


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


class Uncertainty(Term):
    """How unsure the prediction on the original image is, by one of `UNCERTAINTIES`."""

    name = "entropy"

    def __init__(self, kind: str = "entropy") -> None:
        super().__init__()
        self.of = UNCERTAINTIES[kind]

    def per_image(self, outputs: Outputs) -> Tensor:
        """The uncertainty of view 0, [B]."""
        return self.of(outputs.logits[0])


class ReliableNovel(Objective):
    """Entropy, of images that are reliable and unlike those before; the surer, the heavier (ETA).

    An image is reliable when its entropy is below `threshold` times ln K, and novel when the cosine
    between its prediction and the average so far is below `margin`; None takes the published margin
    of the nearest number of classes. The average follows the images that are both.
    """

    average: Tensor | None  # [K]
    margins: Mapping[int, float] = {10: 0.4, 100: 0.1, 1000: 0.05}  # by number of classes

    def __init__(
        self, threshold: float = 0.4, margin: float | None = None, kind: str = "entropy"
    ) -> None:
        super().__init__()
        self.threshold, self.margin, self.uncertainty = threshold, margin, UNCERTAINTIES[kind]
        self.register_buffer("average", None)

    def forward(self, outputs: Outputs) -> Loss:
        """The mean over the images that are reliable and novel."""
        p = log_probabilities(outputs.logits[0].detach()).exp()
        value = self.uncertainty(outputs.logits[0])
        limit = self.threshold * math.log(outputs.classes)
        keep = value.detach() < limit
        if self.average is not None:
            margin = for_classes(self.margins, outputs.classes, self.margin)
            keep = keep & (torch.cosine_similarity(self.average[None], p).abs() < margin)
        if keep.any():
            mean = p[keep].mean(0)
            self.average = mean if self.average is None else 0.9 * self.average + 0.1 * mean
        weighted = (limit - value.detach()).exp() * value
        return Loss.mean(weighted, keep, {"entropy": weighted})


def for_classes(published: Mapping[int, float], classes: int, chosen: float | None) -> float:
    """What was chosen, or else what was published for the nearest number of classes.

    >>> for_classes({10: 0.4, 100: 0.1}, 12, None), for_classes({10: 0.4}, 12, 0.3)
    (0.4, 0.3)
    """
    if chosen is not None:
        return chosen
    return published[min(published, key=lambda known: abs(math.log(known / classes)))]


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


# How unsure a prediction is: [..., K] -> [...].
UNCERTAINTIES: Registry[Callable[[Tensor], Tensor]] = Registry(
    "objective",
    {"entropy": entropy, "come": come, "come_1000": partial(come, mass=1000)},
)
CONSISTENCIES: Registry[type[Term]] = Registry(
    "consistency",
    {"jensen_shannon": JensenShannon, "summed_kl": SummedKL, "squared_error": SquaredError},
)

__all__ = [
    "CONSISTENCIES",
    "UNCERTAINTIES",
    "Entropy",
    "JensenShannon",
    "Objective",
    "ReliableNovel",
    "SquaredError",
    "SummedKL",
    "Term",
    "Uncertainty",
    "Weighted",
    "come",
    "cross_entropy",
    "divergences",
    "entropy",
    "for_classes",
    "generalised_cross_entropy",
    "jensen_shannon",
    "log_probabilities",
    "soft_likelihood_ratio",
    "squared_error",
    "symmetric_cross_entropy",
]
