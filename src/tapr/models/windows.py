"""Policies with a share of the stored statistics, and with a memory of the stream's.

The table in `tapr.models.statistics` says what each of them does; docs/steady.md derives `Window`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tapr import sync
from tapr.errors import InputError
from tapr.models.moments import (
    Forward,
    Moments,
    Scales,
    anchored,
    in_groups,
    mixture,
    nats,
    normalising,
    scales_of,
)
from tapr.models.policies import Policy, Shift

if TYPE_CHECKING:
    from tapr.models.statistics import Statistics

RECENT = 64  # images by which a change of the stream is told, or the batch if that is larger
LEAP = 0.07  # nats between the last few images and the stream before: more than a change of class
MILD = 0.02  # the same where classes are mixed, so that no change of class explains it


class Share(Policy):
    """A forward's own statistics with a share of the stored ones, one for each view or for all."""

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__(model, options)
        self.by_view = self.by_view or len(options.shares) > 1

    def feeding(self, views: int = 1, first: int = 0) -> Forward:
        """The same for views from number `first` on, if each has a share of its own."""
        return normalising(self.tracking, partial(self._mix, views, first), self._scales)

    predicting = feeding

    def words(self, views: int) -> str:
        return f"share {' '.join(f'{share:g}' for share in self.options.shares)}"

    def _mix(self, views: int, first: int, layer: Any, x: Tensor) -> Moments:
        """What a layer normalises by: mean and variance of each channel, in each group."""
        shares = self.options.shares[first : first + views] if self.by_view else self.options.shares
        if self.by_view and len(shares) < views:
            count = len(self.options.shares)
            raise InputError(f"expected a share for each of {first + views} views, got {count}")
        source = [share == 1 and layer not in self.middle for share in shares]
        share, (mean, variance) = layer.running_mean.new_tensor(shares), in_groups(layer, x, source)
        if self.by_view:
            mean, variance = mean.view(views, -1), variance.view(views, -1)
        else:
            share = share[0]
        return self._mixed(layer, (mean, variance), share, sync.rows(x) // views, first)

    def _mixed(
        self, layer: Any, found: Moments, share: Tensor, images: int, first: int = 0
    ) -> Moments:
        """The images' own statistics, mixed with `share` of the stored ones."""
        share = share if share.ndim == 0 else share[:, None]
        return mixture(found, (layer.running_mean, layer.running_var), share)

    def _scales(self, layer: Any, groups: int) -> Scales:
        """What a layer multiplies by and adds, in each group or in all."""
        return scales_of(layer, groups)


class Window(Share):
    """Every image counts once in the stream's statistics, as the last forward saw it."""

    images: Tensor
    recent: Tensor  # so many images count in the next two
    recent_mean: Tensor  # of the middle layer, as the source model sees it
    recent_variance: Tensor

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__(model, options)
        self.places = {layer: place for place, layer in enumerate(self.tracking)}
        groups = [len(options.shares)] if len(options.shares) > 1 else []
        for place, layer in enumerate(self.tracking):
            for name in ("mean", "variance"):
                empty = layer.running_mean.new_zeros([*groups, layer.num_features])
                self.register_buffer(f"{name}_{place}", empty)
        self.register_buffer("images", torch.zeros(()))
        self.anchor = options.shares.index(1) if 1 in options.shares and groups else None
        if self.anchor is not None and self.middle:
            channels = self.middle[0].running_mean
            self.register_buffer("recent_mean", torch.zeros_like(channels))
            self.register_buffer("recent_variance", torch.zeros_like(channels))
            self.register_buffer("recent", torch.zeros(()))
        self._before: dict[str, Tensor] = {}
        self._images = self._recent = 0.0

    def keep_scales(self) -> None:
        for place, layer in enumerate(self.tracking if self.anchor is not None else ()):
            for name in ("weight", "bias"):
                scale = getattr(layer, name)
                if scale is not None and scale.requires_grad:
                    self.register_buffer(f"{name}_{place}", scale.detach().clone())

    def adapting(self, views: int) -> Forward:
        if len(self.options.shares) in (1, views):
            return super().adapting(views)
        return normalising(self.tracking, self._alone)

    def _alone(self, layer: Any, x: Tensor) -> Moments:
        prior = self.options.prior
        stored = layer.running_mean, layer.running_var
        least = prior / (prior + sync.rows(x))
        return anchored(layer, in_groups(layer, x, [False]), stored, stored[0].new_zeros(()), least)

    def _scales(self, layer: Any, groups: int) -> Scales:
        return self._scale("weight", layer, groups), self._scale("bias", layer, groups)

    def _scale(self, name: str, layer: Any, groups: int) -> Tensor | None:
        """The layer's own [C], or [G, C] if those of the source model are others by now."""
        scale: Tensor | None = getattr(layer, name)
        source = self._buffers.get(f"{name}_{self.places[layer]}")
        if source is None or scale is None or groups == 1:
            return scale
        scales = scale.expand(groups, -1).clone()
        scales[self.anchor] = source
        return scales

    def begin(self) -> None:
        moving = ((n, t) for n, t in self.named_buffers() if not n.startswith(("weight", "bias")))
        self._before = {name: tensor.clone() for name, tensor in moving}  # without kept scales
        self._images = float(self.images)
        self._recent = float(self.recent) if self.anchor is not None and self.middle else 0.0

    def forgets(self, mixed: bool = False) -> bool:
        if self.anchor is None or not self.middle or self._images < RECENT:
            return False
        place = self.places[self.middle[0]]
        stream = [self._before[f"{name}_{place}"][self.anchor] for name in ("mean", "variance")]
        recent = self.recent_mean, self.recent_variance
        leap = nats(self.middle[0], recent, (stream[0], stream[1]))
        changed = bool(leap > (MILD if mixed else LEAP))
        if changed:
            self._images = self._recent = 0.0
        return changed

    def _stream(self, view: int) -> Moments:
        """Mean and variance of the middle layer over the stream, as a view sees it."""
        place = self.places[self.middle[0]]
        return self.get_buffer(f"mean_{place}")[view], self.get_buffer(f"variance_{place}")[view]

    def words(self, views: int) -> str:
        return f"{super().words(views)}, window {self.options.window:g}"

    def shift(self) -> Shift | None:
        if self.anchor is None or not self.middle:
            return None
        layer = self.middle[0]
        stored = layer.running_mean, layer.running_var
        return Shift(self.anchor, nats(layer, self._stream(self.anchor), stored))

    def _mixed(
        self, layer: Any, found: Moments, share: Tensor, images: int, first: int = 0
    ) -> Moments:
        total = min(self._images + images, max(self.options.window, images))
        came = range(first, first + len(found[0]))  # of the views
        part = slice(came.start, came.stop) if found[0].ndim > 1 else slice(None)
        names = [f"{name}_{self.places[layer]}" for name in ("mean", "variance")]
        before = self._before[names[0]][part], self._before[names[1]][part]
        stream = mixture(found, before, found[0].new_tensor(1 - images / total))
        for name, value in zip(names, stream, strict=True):
            self.get_buffer(name)[part] = value.detach()
        self.images.fill_(total)
        if layer in self.middle and self.anchor is not None and self.anchor in came:
            place = self.anchor - first
            self._follow((found[0][place], found[1][place]), images)
        stored = layer.running_mean, layer.running_var
        return anchored(
            layer, stream, stored, share, self.options.prior / (self.options.prior + total)
        )

    def _follow(self, found: Moments, images: int) -> None:
        """Remember the statistics of the last few images, or of the batch if that is larger."""
        total = min(self._recent + images, max(RECENT, images))
        before = self._before["recent_mean"], self._before["recent_variance"]
        mean, variance = mixture(found, before, found[0].new_tensor(1 - images / total))
        self.recent_mean.copy_(mean.detach())
        self.recent_variance.copy_(variance.detach())
        self.recent.fill_(total)


class Views(Share):
    """Every view as if it had a forward of its own."""

    by_view = True

    def words(self, views: int) -> str:
        return "batch of each view"

    def _mix(self, views: int, first: int, layer: Any, x: Tensor) -> Moments:
        return in_groups(layer, x, [False] * views)
