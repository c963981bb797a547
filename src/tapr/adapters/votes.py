"""The voters that predict: the original image alone, or several fixed views of it.

With weights by `information`, each voter counts as much as its predictions say about the images:
w = softmax(S x information / ln K), where information is the entropy of its mean prediction minus
the mean entropy of its predictions. A voter that always predicts the same class, or that is never
certain, has no information. All means are over the stream's last `window` images, including the
present ones. While the number n of images is small beside the number K of classes, the mean
prediction says little, and information is little more than confidence: so S = SHARPNESS x
min(1, n / 2K).

Information misses two things, which are judged separately. First, the model may be certain and
wrong on a view that it was never meant to see, such as a mirrored digit. If no other voter agrees
with a voter as the others agree among themselves, that voter sees the original image from then on.
Second, where images come class by class, adapted statistics remove the class. If the source model
predicts one class, on images whose statistics are those it knows, it is trusted (`Votes.trust`).
docs/steady.md derives all three.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from tapr.errors import InputError
from tapr.models.policies import Shift
from tapr.objectives import log_probabilities
from tapr.registry import Registry

ZOOM = 1.1  # how much more of the scene the zoomed view shows, mirrored at the edges
SPECK = 0.25  # a pixel that is further from the median of its neighbourhood is a speck
AT_ONCE = 1 << 19  # values that become a view together, since that takes several times their memory
SHARPNESS = 10.0  # of the weights by information
SHOWN = 2  # with so many images for each class, information counts in full
KNOWN = 0.06  # nats between the stream's statistics and the source's that one class may explain
RECENT = 64  # images that show whether a stream has one class, or the batch if that is larger
ENOUGH = 32  # images before a view may be refused, or classes count as mixed
MIXED = 0.05  # mixed: two images share a class at most so much more often than by chance
LEAST = 0.6  # a view must agree with another at least so much, relative to the others' agreement


def _flip(images: Tensor) -> Tensor:
    return images.flip(3)


def _zoom(images: Tensor) -> Tensor:
    """The image made smaller by 1 / ZOOM, with a border that reflects it."""
    height, width = images.shape[2:]
    y, x = (math.ceil(side * (ZOOM - 1) / 2) for side in (height, width))
    wide = functional.pad(
        images, (x, x, y, y), "reflect" if min(height, width) > 1 else "replicate"
    )
    exact = wide.to(torch.promote_types(images.dtype, torch.float32))  # halves cannot be resized
    small = functional.interpolate(exact, (height, width), mode="bilinear", antialias=True)
    return small.clamp_(0, 1).to(images.dtype)


def _smooth(images: Tensor) -> Tensor:
    """The image without specks, slightly blurred: less noise, and most of what the image shows."""
    exact = images.to(torch.promote_types(images.dtype, torch.float32))
    around = _median(exact)
    wide = _bordered(torch.where((exact - around).abs() > SPECK, around, exact))
    above, here, below = _along(2, wide)
    left, middle, right = _along(3, above + below + 2 * here)
    return ((left + right + 2 * middle) / 16).to(images.dtype)


def _median(images: Tensor) -> Tensor:
    """The median of each pixel and its eight neighbours: of sorted columns, then across them."""
    above, here, below = _along(2, _bordered(images))
    low, high = above.minimum(here), above.maximum(here)
    middles = _along(3, low.maximum(high.minimum(below)))
    one, two, three = _along(3, low.minimum(below))
    lowest = one.maximum(two).maximum(three)
    one, two, three = _along(3, high.maximum(below))
    return _middle(lowest, _middle(*middles), one.minimum(two).minimum(three))


def _middle(one: Tensor, two: Tensor, three: Tensor) -> Tensor:
    return one.minimum(two).maximum(one.maximum(two).minimum(three))


def _bordered(images: Tensor) -> Tensor:
    """The images with a border of one pixel, which repeats the edge."""
    return functional.pad(images, (1, 1, 1, 1), "replicate")


def _along(axis: int, wide: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The neighbours before, the pixels themselves and the neighbours after, without the border."""
    size = wide.shape[axis] - 2
    return wide.narrow(axis, 0, size), wide.narrow(axis, 1, size), wide.narrow(axis, 2, size)


def _in_parts(make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The same view, made of a part of the images after the other."""

    def made(images: Tensor) -> Tensor:
        few = max(1, AT_ONCE // max(images[:1].numel(), 1))
        return torch.cat([make(part) for part in torch.split(images, few)])

    return made


VOTERS: Registry[Callable[[Tensor], Tensor]] = Registry(
    "view",
    {
        "original": lambda images: images,
        "flip": _flip,
        "smooth": _in_parts(_smooth),
        "zoom": _in_parts(_zoom),
    },
)
Weights = Literal["equal", "information"]
WEIGHTS = Registry("weights", {name: name for name in get_args(Weights)})


def one_class(mean: Tensor, squares: Tensor, images: Tensor) -> Tensor:
    """How often two different images share a class beyond chance, from 0 (mixed) to 1 (always).

    It needs the mean prediction [K] of the images, the mean sum of squared probabilities, and the
    number of images.
    """
    by_chance = 1 / max(len(mean), 2)
    same = (images * mean.square().sum() - squares) / (images - 1).clamp(min=1)
    return (same - by_chance) / (1 - by_chance)


class Votes(nn.Module):
    """Fixed views of every image that predict together, by the weighted mean of probabilities.

    >>> Votes(("original", "flip")).views(torch.zeros(4, 3, 8, 8)).shape
    torch.Size([8, 3, 8, 8])
    """

    images: Tensor  # how many count in the means
    means: Tensor  # [V, K] of each voter's predictions
    entropies: Tensor  # [V]
    agreement: Tensor  # [V, V], the probability that two voters predict the same
    refused: Tensor  # [V] bool: this voter sees the original image instead
    recent: Tensor  # [K], the source model's mean prediction on the last few images
    squares: Tensor  # the mean over these of the sum of squared probabilities
    recent_images: Tensor

    def __init__(
        self,
        voters: Sequence[str] = ("original",),
        weights: Weights = "equal",
        window: float = 500.0,
    ) -> None:
        super().__init__()
        if not voters:
            raise InputError("expected at least one view to predict from, got none")
        for name in voters:
            VOTERS.check(name)
        self.voters = tuple(voters)
        self.weights, self.window = WEIGHTS[weights], window
        for name in _MEMORY if self.weighs else ():
            self.register_buffer(name, None)

    @classmethod
    def of(
        cls,
        votes: "str | Sequence[str] | Votes",
        weights: Weights = "equal",
        window: float = 500.0,
    ) -> "Votes":
        """Make votes from names (a list, or a text with commas or plus signs); pass `Votes` on."""
        if isinstance(votes, Votes):
            return votes
        if isinstance(votes, str):
            votes = [name.strip() for name in votes.replace("+", ",").split(",") if name.strip()]
        if not isinstance(votes, Sequence):
            raise InputError(f"expected votes as names of views, got {votes!r}")
        return cls(votes, weights, window)

    @property
    def count(self) -> int:
        """The number of voters."""
        return len(self.voters)

    @property
    def alone(self) -> bool:
        """Whether the original image predicts alone."""
        return self.voters == ("original",)

    @property
    def weighs(self) -> bool:
        """Whether voters have weights by information, which needs a memory of the stream."""
        return self.weights == "information" and self.count > 1

    def views(self, images: Tensor) -> Tensor:
        """The voters' views one after another, [V * B, C, H, W]."""
        if self.alone:
            return images
        return torch.cat([self.view(voter, images) for voter in range(self.count)])

    def view(self, voter: int, images: Tensor) -> Tensor:
        """The view of the images that one of the voters has."""
        out = self.weighs and self.refused is not None and bool(self.refused[voter])
        return VOTERS["original" if out else self.voters[voter]](images)

    def forward(self, view_logits: Tensor, shift: Shift | None = None) -> Tensor:
        """Combine the logits of all voters [V, B, K] into one answer [B, K]; update the weights."""
        if len(view_logits) == 1:
            return view_logits[0]
        log_p = log_probabilities(view_logits.detach() if self.weighs else view_logits)
        if self.weighs:
            log_p = log_p + self._weigh(log_p, shift).log()[:, None, None]
        else:
            log_p = log_p - math.log(len(log_p))
        return log_p.logsumexp(0).to(view_logits.dtype)

    def forget(self) -> None:
        """Forget the weights: earlier predictions were about other images."""
        if self.weighs and self.images is not None:
            self.images.zero_()
            self.recent_images.zero_()

    @torch.no_grad()
    def mixed(self, view_logits: Tensor) -> bool:
        """Whether the classes of these images are mixed, by all views [V, B, K] but the first."""
        if len(view_logits) < 2 or view_logits.shape[1] < ENOUGH:
            return False
        p = log_probabilities(view_logits[1:]).exp().mean(0)
        images = p.new_tensor(float(len(p)))
        return bool(one_class(p.mean(0), p.square().sum(1).mean(), images) < MIXED)

    def memory(self) -> list[Tensor]:
        """The memory of the stream, as far as it has to be finite."""
        return [tensor for tensor in self.buffers() if tensor.is_floating_point()]

    def extra_repr(self) -> str:
        """The voters, for `repr`."""
        return ", ".join(self.voters)

    @torch.no_grad()
    def _weigh(self, log_p: Tensor, shift: Shift | None) -> Tensor:
        """Add the voters' predictions of a batch, [V, B, K], and return their weights, [V]."""
        p = log_p.exp()
        _, images, classes = p.shape
        if self.images is None:
            self._forget(p)
        part = self._count(self.images, images, self.window)
        self.means.lerp_(p.mean(1), part)
        self.entropies.lerp_(-(p * log_p).sum(2).mean(1), part)
        self.agreement.lerp_(torch.einsum("vbk,wbk->vw", p, p) / images, part)
        spread = -(self.means * self.means.clamp(min=1e-30).log()).sum(1)
        information = (spread - self.entropies) / math.log(max(classes, 2))
        lonely = self._lonely()
        sharpness = SHARPNESS * (self.images / (SHOWN * classes)).clamp(max=1)
        weights = (sharpness * information).masked_fill(lonely, -math.inf).softmax(0)
        if lonely.any():
            refused = self.refused | lonely
            self._forget(p)  # its earlier predictions were on a view that it no longer has
            self.refused.copy_(refused)
        if shift is not None:
            trust = self.trust(p[shift.view], shift.nats.to(p))
            weights = weights * (1 - trust)
            weights[shift.view] += trust
        return weights

    def _lonely(self) -> Tensor:
        """The voters with which no other agrees as the others agree among themselves, [V] bool."""
        among = self.agreement.clone().fill_diagonal_(0)
        lonely = torch.zeros_like(self.refused)
        if self.count < 3 or self.images < ENOUGH:
            return lonely
        for voter, name in enumerate(self.voters):
            others = [other for other in range(self.count) if other != voter]
            best, theirs = among[voter].max(), among[others][:, others].max()
            lonely[voter] = best < LEAST * theirs and name != "original"
        return lonely & ~self.refused

    def trust(self, p: Tensor, nats: Tensor) -> Tensor:
        """The trust in the source model's predictions p [B, K] alone, from 0 to 1.

        It is high if they are of one class only, and the statistics of the images are those that
        the model knows. One class is recognised by the probability that two different images have
        the same one.
        """
        part = self._count(self.recent_images, len(p), RECENT)
        self.recent.lerp_(p.mean(0), part)
        self.squares.lerp_(p.square().sum(1).mean(), part)
        images = self.recent_images
        shared = one_class(self.recent, self.squares, images)
        shared = (2 * shared * images / (images + 16)).clamp(0, 1)
        return shared * (-(nats / KNOWN).square()).exp()

    def _count(self, images: Tensor, more: int, window: float) -> Tensor:
        """Count `more` images, up to `window`, and return their share of all that count."""
        images.add_(more).clamp_(max=max(window, more))
        return more / images

    def _forget(self, p: Tensor) -> None:
        voters, _, classes = p.shape
        sizes = {"means": (voters, classes), "entropies": (voters,), "recent": (classes,)}
        sizes["agreement"] = (voters, voters)
        for name in _MEMORY:
            setattr(self, name, p.new_zeros(sizes.get(name, ())))
        self.refused = torch.zeros(voters, dtype=torch.bool, device=p.device)


_MEMORY = tuple(name for name in Votes.__annotations__)
