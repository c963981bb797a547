"""Who predicts: the original image alone, or several fixed views of it that vote."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.errors import InputError
from tapr.objectives import log_probabilities
from tapr.registry import Registry

ZOOM = 1.1  # how much more of the scene the zoomed view shows, mirrored at the edges


def _flip(images: Tensor) -> Tensor:
    return images.flip(3)


def _zoom(images: Tensor) -> Tensor:
    """Zoomed out: the image smaller by 1 / ZOOM, what lies around it reflected."""
    height, width = images.shape[2:]
    y, x = (math.ceil(side * (ZOOM - 1) / 2) for side in (height, width))
    wide = functional.pad(
        images, (x, x, y, y), "reflect" if min(height, width) > 1 else "replicate"
    )
    small = functional.interpolate(wide, (height, width), mode="bilinear", antialias=True)
    return small.clamp(0, 1)


VOTERS: Registry[Callable[[Tensor], Tensor]] = Registry(
    "view", {"original": lambda images: images, "flip": _flip, "zoom": _zoom}
)


class Votes(nn.Module):
    """Fixed views of every image that predict together, by the mean of their probabilities.

    >>> Votes(("original", "flip")).views(torch.zeros(4, 3, 8, 8)).shape
    torch.Size([8, 3, 8, 8])
    """

    def __init__(self, voters: Sequence[str] = ("original",)) -> None:
        super().__init__()
        if not voters:
            raise InputError("expected at least one view to predict from, got none")
        for name in voters:
            VOTERS.check(name)
        self.voters = tuple(voters)

    @classmethod
    def of(cls, votes: "str | Sequence[str] | Votes") -> "Votes":
        """Votes from names with commas or plus signs between, a list of names, or as they are."""
        if isinstance(votes, Votes):
            return votes
        if isinstance(votes, str):
            votes = [name.strip() for name in votes.replace("+", ",").split(",") if name.strip()]
        if not isinstance(votes, Sequence):
            raise InputError(f"expected votes as names of views, got {votes!r}")
        return cls(votes)

    @property
    def count(self) -> int:
        """The number of voters."""
        return len(self.voters)

    @property
    def alone(self) -> bool:
        """Does the original image predict alone?"""
        return self.voters == ("original",)

    def views(self, images: Tensor) -> Tensor:
        """The voters' views behind one another, [V * B, C, H, W]."""
        if self.alone:
            return images
        return torch.cat([VOTERS[name](images) for name in self.voters])

    def forward(self, view_logits: Tensor) -> Tensor:
        """One answer of all voters: [V, B, K] to logits [B, K]."""
        if len(view_logits) == 1:
            return view_logits[0]
        together = log_probabilities(view_logits).logsumexp(0) - math.log(len(view_logits))
        return together.to(view_logits.dtype)

    def extra_repr(self) -> str:
        """The voters, for `repr`."""
        return ", ".join(self.voters)
