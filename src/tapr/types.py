"""The values that the layers pass to each other, with their shapes.

V views, B images, K classes, D features; view 0 is the original image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor, nn


class Batch(NamedTuple):
    """One batch of a stream; only `runs.evaluate` reads the labels."""

    images: Tensor  # [B, C, H, W] float in [0, 1]
    labels: Tensor | None  # [B] int64
    domain: str  # where the images come from, e.g. "gaussian_noise-5"
    reset: bool  # True on the first batch of a domain that starts from the source model


class Outputs(NamedTuple):
    """What a model returned for a batch: all that an objective or a correction may use."""

    logits: Tensor  # [V, B, K]
    images: Tensor  # [B, C, H, W]
    features: Tensor | None = None  # [V, B, D], the input of the head, when asked for
    head: nn.Linear | None = None  # the last linear layer, when features are asked for
    teacher: Tensor | None = None  # [B, K], the teacher's logits, when there is one
    weights: Tensor | None = None  # [B], how much each image counts, when a memory says so

    @property
    def classes(self) -> int:
        """The number of classes, K."""
        return self.logits.shape[-1]


class Loss(NamedTuple):
    """What an objective computes for a batch; a step minimises `total`."""

    total: Tensor  # a scalar
    per_image: Tensor  # [B]
    keep: Tensor  # [B] bool: which images drive the step; none: no step is taken
    terms: Mapping[str, Tensor]  # the named, weighted parts of per_image, each [B]

    @classmethod
    def mean(
        cls, per_image: Tensor, keep: Tensor | None = None, terms: Mapping[str, Tensor] = {}
    ) -> Loss:
        """The loss whose total is the mean over the images kept; without `keep`, over all."""
        if keep is None:
            keep = per_image.new_ones(per_image.shape).bool()
        return cls(mean_of(per_image, keep), per_image, keep, terms)


Verdict = Literal["ok", "watch", "harm"]


class Health(NamedTuple):
    """How an adapted model compares with the source model on the same images, without labels.

    Predictions are compared over the last few hundred images; docs/health.md says what follows.
    """

    verdict: Verdict = "ok"
    reason: str = ""  # in a sentence; "" when all is well
    action: str = ""  # what the guard did about it; "" for nothing
    images: int = 0  # the number of images that were compared
    credit: float = 0.0  # how much more a witness believes the adapted model, from -1 to 1
    support: float = 0.0  # the same, with the source model as part of the witness
    agreement: float = 1.0  # the share of images for which both predict the same class
    entropy: float = 0.0  # the mean, as a share of ln K, the largest possible; so the next five
    source_entropy: float = 0.0
    information: float = 0.0  # entropy of the mean prediction minus mean entropy
    source_information: float = 0.0
    spread: float = 0.0  # entropy of the mean prediction: 0 when all images are of one class
    source_spread: float = 0.0
    views: float = 1.0  # probability that two views of an image agree, by the source model
    shift: tuple[float, ...] = ()  # nats between the images and the source, by batch-norm layer
    distance: float = 0.0  # of the parameters from the source's, relative to these


class Prediction(NamedTuple):
    """What an adapter returns for a batch."""

    logits: Tensor  # [B, K]
    loss: float | None = None  # mean over the images kept, at the last step; None without a step
    terms: Mapping[str, float] = {}  # the loss's named parts, likewise
    steps: int = 0  # steps taken
    kept: int = 0  # images that drove the last step
    refused: int = 0  # steps that the guard rolled back
    forward: int = 0  # images that went through the model, or a teacher
    backward: int = 0  # images that went back through it
    seconds: float = 0.0  # the time that the batch took
    timings: Mapping[str, float] = {}  # seconds spent on views, on learning and on predicting
    shadow: int = 0  # images that went through the source model for the guard, not in `forward`
    health: Health | None = None  # None when the guard is off, or did not compare this batch


def mean_of(values: Tensor, keep: Tensor) -> Tensor:
    """The mean of the values that are kept; 0 when none is."""
    return values.where(keep, values.new_zeros(())).sum() / keep.sum().clamp(min=1)
