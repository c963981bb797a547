"""The vocabulary of shapes: what travels between the layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor


class Batch(NamedTuple):
    """One batch of a stream; only `runs.evaluate` reads the labels."""

    images: Tensor  # [B, C, H, W] float in [0, 1]
    labels: Tensor | None  # [B] int64
    domain: str  # where the images come from, e.g. "gaussian_noise-5"
    reset: bool  # True on the first batch of a domain that starts from the source model


class Loss(NamedTuple):
    """What an objective makes of the views' logits."""

    per_image: Tensor  # [B]
    keep: Tensor  # [B] bool: may this image drive the update
    terms: Mapping[str, Tensor]  # the named, weighted parts of per_image, each [B]


class Prediction(NamedTuple):
    """What an adapter returns for a batch."""

    logits: Tensor  # [B, K]
    loss: float | None  # mean over the kept images at the last step; None when none was computed
    terms: Mapping[str, float]  # the loss's named parts, likewise
    steps: int  # steps taken
    kept: int  # images that drove the last step
    refused: int  # steps refused by the guard
