"""Steady: the source model, and two views of the image with anchored statistics, vote."""

from collections.abc import Sequence
from typing import Any

from torch import nn

from tapr.adapters import Loop, Votes
from tapr.adapters.guard import Mode
from tapr.adapters.votes import Weights
from tapr.errors import InputError
from tapr.models.statistics import Statistics


class Steady(Loop):
    """Lets the source model and two adapted views vote, by information. Moves nothing; 3 forwards.

    Ours: docs/steady.md. The original image meets the source's batch-norm statistics, the mirrored
    and the zoomed one a mixture with the stream's, of which `share` is the source's. Statistics
    are counted in images (`prior`, `window`), so that any batch size will do. Without batch-norm
    layers the views vote all the same.
    """

    title = "steady"

    def __init__(
        self,
        model: nn.Module,
        *,
        votes: str | Sequence[str] = ("original", "flip", "zoom"),
        weights: Weights = "information",
        share: Sequence[float] = (1.0, 0.3, 0.5),
        prior: float = 16.0,
        window: float = 1000.0,
        guard: Mode = "act",
        **common: Any,
    ) -> None:
        voters = Votes.of(votes, weights, window)
        statistics = Statistics("window", share=share, prior=prior, window=window)
        if len(statistics.shares) not in (1, voters.count):
            raise InputError(
                f"expected a share for each of {voters.count} voters, got {len(statistics.shares)}"
            )
        super().__init__(model, statistics=statistics, votes=voters, guard=guard, **common)
