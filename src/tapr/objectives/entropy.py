"""Confidence: the entropy of a prediction (equation 3 of the paper, and Tent's objective)."""

from torch import Tensor

from tapr.objectives.base import Term, log_probabilities


def entropy(logits: Tensor) -> Tensor:
    """Shannon entropy in nats of the softmax of `logits` over the last axis.

    >>> import torch
    >>> round(entropy(torch.zeros(1, 2)).item(), 4)
    0.6931
    """
    log_p = log_probabilities(logits)
    return -(log_p.exp() * log_p).sum(-1)


class Entropy(Term):
    """The entropy of the untouched view."""

    name = "entropy"

    def per_image(self, view_logits: Tensor) -> Tensor:
        """Entropy of view 0, [B]."""
        return entropy(view_logits[0])
