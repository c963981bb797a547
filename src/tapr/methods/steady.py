"""Steady: the source model, and two views of the image with anchored statistics, vote."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch import Tensor, nn, optim

from tapr.adapters import Loop, Mixed, Schedule, Votes
from tapr.adapters.checks import check_options
from tapr.adapters.guard import Mode
from tapr.adapters.votes import Weights
from tapr.errors import InputError
from tapr.models.scope import SCOPES, Scope
from tapr.models.statistics import Statistics
from tapr.objectives import entropy
from tapr.types import Loss, Outputs

SURE = 0.4  # times ln K: images with a lower entropy are learnt from, as in ETA and SAR
MOMENTUM = 0.9


class Steady(Loop):
    """Lets the source model and two adapted views vote, by information. Moves nothing; 3 forwards.

    This method is ours: docs/steady.md. The original image is predicted with the source's
    batch-norm statistics, the mirrored and the smoothed one with a mixture of these and the
    stream's, of which `share` is the source's. Statistics are counted in images (`prior`,
    `window`), so that any batch size will do. Without batch-norm layers the views vote as well.
    When the stream changes, the batch that shows it is predicted again, with 3 more forwards.

    `learn=True` is for long streams. After the vote, scale and shift of the normalisation layers in
    `scope` (below the top quarter of the blocks, as in SAR) take a step, at rate `lr`, down the
    entropy of the images that the model is certain of, as the last voter sees them: 1 forward and 1
    backward more, for `every` 64 images or a larger batch. It learns from them only if their
    classes are mixed: if two of them share a class, by the vote, at most `one_class` more often
    than by chance. The source model votes with its own scales (where the layers are torch's batch
    norm), and when the stream changes, all scales return to the source's.
    """

    title = "steady"
    only_own = True

    def __init__(
        self,
        model: nn.Module,
        *,
        votes: str | Sequence[str] = ("original", "flip", "smooth"),
        weights: Weights = "information",
        share: Sequence[float] = (1.0, 0.3, 0.5),
        prior: float = 16.0,
        window: float = 1000.0,
        learn: bool = False,
        lr: float = 0.3,
        every: int = 64,
        one_class: float = 0.02,
        scope: str | Scope = "lower_norm",
        guard: Mode = "act",
        **common: Any,
    ) -> None:
        check_options({"learn": learn, "lr": lr, "every": every, "one_class": one_class})
        voters = Votes.of(votes, weights, window)
        statistics = Statistics("window", share=share, prior=prior, window=window)
        if len(statistics.shares) not in (1, voters.count):
            raise InputError(
                f"expected a share for each of {voters.count} voters, got {len(statistics.shares)}"
            )
        parts: dict[str, Any] = {}
        if learn:
            parts["optimizing"] = partial(optim.SGD, lr=lr, momentum=MOMENTUM)
            parts["scope"] = scope if callable(scope) else SCOPES[scope](model)
            parts["schedule"] = Schedule(predict="before")
            parts["memory"] = Mixed(every, one_class)
        super().__init__(model, statistics=statistics, votes=voters, guard=guard, **parts, **common)

    def _draw(self, images: Tensor) -> Tensor:
        """What is learnt from: the images as the last voter sees them."""
        return super()._draw(self.votes.view(self.votes.count - 1, images))

    def objective(self, outputs: Outputs) -> Loss:
        """The entropy of the images that the model is certain of."""
        value = entropy(outputs.logits[0])
        keep = value.detach() < SURE * math.log(outputs.classes)
        return Loss.mean(value, keep, {"entropy": value})
