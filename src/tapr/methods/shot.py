"""SHOT, online: information maximisation, and pseudo-labels."""

from typing import Any

from torch import nn

from tapr.adapters import Learner
from tapr.adapters.checks import check_options
from tapr.adapters.schedule import Predict
from tapr.objectives import entropy, log_probabilities
from tapr.types import Loss, Outputs, mean_of


class SHOT(Learner):
    """Information maximisation, and its own labels. Moves all but the head; 1 forward, 1 backward.

    Liang et al., ICML 2020, in the online form of later benchmarks: the mean entropy minus
    `diversity` times the entropy of the batch's mean prediction, plus `pseudo_labels` times the
    cross-entropy to the likeliest class of images above `confidence`; without such images that
    term is 0, where the ports give NaN. `im` is information maximisation alone.

    The original is offline: 15 epochs over the test set, with labels from clusters of features.
    Online ports differ: `tea` (T3A, TEA) weights the labels by 0.1, TTAB by 0.3 as we do; `lame`
    (LAME's repository) has no labels, moves norm scales by plain SGD, and predicts after the step
    with the source's statistics.
    """

    title = "SHOT"
    only_own = True
    paper = "Liang et al., ICML 2020"
    presets = {
        "im": {"pseudo_labels": 0.0},
        "tea": {"pseudo_labels": 0.1},
        "lame": {
            **{"pseudo_labels": 0.0, "scope": "norm", "optimizer": "sgd", "momentum": 0.0},
            **{"predict": "after", "statistics": "apart"},
        },
    }

    def __init__(
        self,
        model: nn.Module,
        *,
        pseudo_labels: float = 0.3,
        confidence: float = 0.9,
        diversity: float = 1.0,
        optimizer: Any = "adam",
        lr: float = 1e-3,
        scope: Any = "backbone",
        predict: Predict = "before",
        **common: Any,
    ) -> None:
        check_options({"pseudo_labels": pseudo_labels, "confidence": confidence})
        check_options({"diversity": diversity})
        super().__init__(model, optimizer=optimizer, lr=lr, scope=scope, predict=predict, **common)
        self.pseudo_labels, self.confidence = pseudo_labels, confidence
        self.diversity = diversity

    def objective(self, outputs: Outputs) -> Loss:
        """The terms of the loss; those of the whole batch are the same for all its images."""
        log_p = log_probabilities(outputs.logits[0])
        mean = log_p.exp().mean(0)
        negative_diversity = self.diversity * (mean * (mean + 1e-5).log()).sum()
        terms = {"entropy": entropy(outputs.logits[0])}
        terms["diversity"] = negative_diversity.expand(len(log_p))
        if self.pseudo_labels:
            best = log_p.amax(1)
            sure = best.detach().exp() > self.confidence
            labels = self.pseudo_labels * mean_of(-best, sure)
            terms["pseudo-labels"] = labels.expand(len(log_p))
        return Loss.mean(sum(terms.values(), start=log_p.new_zeros(())), terms=terms)
