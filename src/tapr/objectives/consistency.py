"""Agreement: how far the predictions on the views of one image are apart (equation 1)."""

import math

from torch import Tensor

from tapr.objectives.base import Term, log_probabilities


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
    """Jensen-Shannon divergence of V views: [V, B, K] -> [B], between 0 and log V.

    >>> import torch
    >>> certain = torch.tensor([[1e4, 0.0], [0.0, 1e4]])
    >>> round(jensen_shannon(certain[:, None]).item(), 4)  # two views that exclude each other
    0.6931
    """
    return divergences(view_logits).mean(0).clamp(min=0)  # rounding may fall just below 0


def squared_error(view_logits: Tensor) -> Tensor:
    """Mean over the views of the squared distance to their mean prediction: [V, B, K] -> [B]."""
    p = log_probabilities(view_logits).exp()
    return (p - p.mean(0)).square().sum(-1).mean(0)


class JensenShannon(Term):
    """The paper's consistency: the mean over the views of KL to their mean prediction."""

    name = "consistency"

    def per_image(self, view_logits: Tensor) -> Tensor:
        """Jensen-Shannon divergence, [B]."""
        return jensen_shannon(view_logits)


class SummedKL(Term):
    """The released code's consistency: the KLs summed, the mean prediction kept above 1e-7."""

    name = "consistency"

    def per_image(self, view_logits: Tensor) -> Tensor:
        """Sum over the views of KL to the floored mean prediction, [B]."""
        return divergences(view_logits, mixture_floor=1e-7).sum(0)


class SquaredError(Term):
    """Consistency by squared error instead of KL."""

    name = "consistency"

    def per_image(self, view_logits: Tensor) -> Tensor:
        """Mean squared distance of the views to their mean prediction, [B]."""
        return squared_error(view_logits)
