"""Whose statistics batch normalisation uses, and which images feed them.

Two kinds of forward exist. In an *adapting* forward all views of a batch stand behind one another;
in a *predicting* forward only those images whose logits are the answer. A policy says whose
statistics each of them meets:

| statistics   | adapting forward            | predicting forward                                 |
|--------------|-----------------------------|----------------------------------------------------|
| `source`     | the stored ones             | the stored ones, never moved                       |
| `batch`      | the forward's own           | the forward's own                                  |
| `running`    | own; moves the stored ones by `momentum` | the stored ones                       |
| `cumulative` | own; the stored ones are the mean over all such forwards | the stored ones       |
| `apart`      | the forward's own           | the stored ones, never moved                       |
| `blend`      | the forward's own           | (prior x stored + n x own) / (prior + n), n images |
| `share`      | `share` of the stored ones, the rest own | the same                              |
| `window`     | `share` of the stored ones, the rest the stream's* | the same                    |
| `views`      | each view's own             | the same                                           |
| `prior`      | (prior x stored + own) / (prior + 1) | the same                                  |
| `robust`     | the stored ones, moved by `momentum` just before | the stored ones               |
| `instance`   | own; moves the stored ones by `momentum`; corrected | the stored ones; corrected |
| `instance-batch` | own; corrected          | own; corrected                                     |

The stream's statistics are a mean over its last `window` images, the present ones included: they
are counted in images, not in forwards, so that the batch size does not change what is remembered.
At the start of a stream the stored statistics count as `prior` images, and then for `share`, or
less where the stream lies far from them (`moments.anchored`). A list of shares, one for each view,
gives every view statistics of its own; one number, or any other policy but `views`, takes them over
all views together. A view with share 1 meets the stored ones: it is the source model itself, and
keeps the scales of the layers too when others learn. (*) An adapting forward of other views than
those leaves their statistics alone: it meets its n images' own, with a share of prior / (prior + n)
of the stored ones.

How far the stream lies from what the source model knows is measured on its view (`Policy.shift`),
and when the stream leaps away from what it showed before, that is forgotten (`Policy.forgets`).
"Corrected" is for each image by its own statistics, as far as they lie outside what chance makes of
the others (IABN, of NOTE): `deviations` standard deviations.

`feed` says which images move the statistics of `running` and `cumulative`: all `views`, in the
adapting forward itself, or the `untouched` ones, in a further forward without the others: what a
layer sees depends on whose statistics the layers before it used. Layers that keep no running
statistics always use the images' own.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from tapr import sync
from tapr.errors import InputError
from tapr.models.moments import (
    Forward,
    Moments,
    Scales,
    anchored,
    biased,
    hooked,
    in_groups,
    mixture,
    moved,
    nats,
    normalising,
    own,
    scales_of,
    setting,
    unbiased,
)
from tapr.registry import Registry

Feed = Literal["views", "untouched"]
FEEDS = Registry("feed", {feed: feed for feed in get_args(Feed)})
RECENT = 64  # images by which a change of the stream is told, or the batch if that is larger
LEAP = 0.07  # nats between the last few images and the stream before: more than a change of class
MILD = 0.02  # the same where classes are mixed, so that no change of class explains it


class Shift(NamedTuple):
    """How far the stream lies from what the source model knows, seen by one view."""

    view: int  # the one that meets the stored statistics
    nats: Tensor  # Kullback-Leibler divergence of a middle layer's channels, the mean over them


class Statistics(NamedTuple):
    """The options of a policy: see the module's table."""

    use: str = "batch"
    feed: Feed = "views"
    momentum: float = 0.1
    prior: float = 16.0
    share: float | Sequence[float] = 0.5
    window: float = 500.0
    deviations: float = 4.0

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the stored statistics, for all views or one for each."""
        return (self.share,) if isinstance(self.share, int | float) else tuple(self.share)

    def policy(self, model: nn.Module) -> "Policy":
        """The policy for the batch-norm layers of a model."""
        self.check()
        return POLICIES[self.use](model, self)

    def check(self) -> None:
        """Refuse names nobody knows and numbers outside their range."""
        POLICIES.check(self.use)
        FEEDS.check(self.feed)
        if not isinstance(self.momentum, int | float) or not 0 < self.momentum <= 1:
            raise InputError(f"expected a statistics momentum in (0, 1], got {self.momentum!r}")
        if not isinstance(self.prior, int | float) or not 0 <= self.prior < float("inf"):
            raise InputError(f"expected a prior strength of 0 or more, got {self.prior!r}")
        if not isinstance(self.window, int | float) or not 1 <= self.window < float("inf"):
            raise InputError(f"expected a window of 1 image or more, got {self.window!r}")
        if not isinstance(self.deviations, int | float) or not self.deviations >= 0:
            raise InputError(f"expected deviations of 0 or more, got {self.deviations!r}")
        listed = isinstance(self.share, Sequence) and not isinstance(self.share, str)
        good = listed or isinstance(self.share, int | float)
        shares = self.shares if good else ()
        if not shares or not all(isinstance(v, int | float) and 0 <= v <= 1 for v in shares):
            raise InputError(
                f"expected a share from 0 to 1, or a list of one for each view, got {self.share!r}"
            )


class Policy(nn.Module):
    """The batch-norm layers of a model, and whose statistics they use; they stay what they are."""

    moves = False  # does an adapting forward feed the stored statistics?
    predicts_apart = False  # does only a predicting forward meet them as the policy says?
    by_view = False  # does every view have statistics of its own?

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__()
        self.options = options
        self.layers: list[Any] = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        self.tracking = [
            layer
            for layer in self.layers
            if layer.running_mean is not None and layer.running_var is not None
        ]
        self.middle = self.tracking[len(self.tracking) // 2 :][:1]  # a list: it is no part of this

    def stored(self) -> list[Tensor]:
        """The statistics of all layers, and what is remembered beside them."""
        kept = [tensor for m in self.tracking for tensor in (m.running_mean, m.running_var)]
        return [*(tensor for tensor in kept if tensor is not None), *self.buffers()]

    def begin(self) -> None:
        """A batch begins: what is remembered by now is that of the batches before."""

    def adapting(self, views: int) -> Forward:
        """Around a forward of `views` views behind one another; feeds, unless that is apart."""
        return own(self.layers) if self.feeds_apart(views) else self.feeding(views)

    def feeds_apart(self, views: int) -> bool:
        """Do the original images among `views` views need a forward of their own, to feed alone?"""
        return self.moves and self.options.feed == "untouched" and views > 1

    def feeding(self, views: int = 1) -> Forward:
        """Around a forward that moves what the policy remembers, if it does."""
        return own(self.layers)

    def predicting(self, views: int = 1) -> Forward:
        """Around a forward, of `views` views behind one another, whose logits are the answer."""
        return nullcontext()

    def shift(self) -> Shift | None:
        """How far the stream lies from the source, if a view meets the stored statistics."""
        return None

    def forgets(self, mixed: bool = False) -> bool:
        """Has the stream changed with these images? Then the next forward begins it anew.

        Where the classes of the images are `mixed`, a milder change is one.
        """
        return False

    def keep_scales(self) -> None:
        """Before layers learn, keep the scales that the source model's view has."""

    def words(self, views: int) -> str:
        """The policy as tables name it."""
        feed = f", fed by {self.options.feed}" if self.moves and views > 1 else ""
        return f"{self.options.use}{feed}"


class _Source(Policy):
    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=False)


class _Batch(Policy):
    def predicting(self, views: int = 1) -> Forward:
        return own(self.layers)


class _Running(Policy):
    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=True, momentum=self.options.momentum)


class _Cumulative(Policy):
    moves = True

    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__(model, options)
        for layer in self.tracking:
            layer.num_batches_tracked = torch.zeros_like(layer.running_mean[0], dtype=torch.long)

    def feeding(self, views: int = 1) -> Forward:
        return setting(self.layers, training=True, momentum=None)  # torch's own cumulative mean


class _Apart(Policy):
    predicts_apart = True


class _Blend(Policy):
    predicts_apart = True

    def predicting(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = biased(x)
        images = sync.rows(x)
        weight = images / (images + self.options.prior)
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), weight)
        variance = layer.running_var.lerp(variance.to(layer.running_var), weight)
        return (moved(layer, x, mean, variance), *inputs[1:])


class _Share(Policy):
    def __init__(self, model: nn.Module, options: Statistics) -> None:
        super().__init__(model, options)
        self.by_view = self.by_view or len(options.shares) > 1

    def feeding(self, views: int = 1) -> Forward:
        return normalising(self.tracking, partial(self._mix, views), self._scales)

    predicting = feeding

    def words(self, views: int) -> str:
        return f"share {' '.join(f'{share:g}' for share in self.options.shares)}"

    def _mix(self, views: int, layer: Any, x: Tensor) -> Moments:
        """What a layer normalises by: mean and variance of each channel, in each group."""
        shares = self.options.shares
        groups = 1 if len(shares) == 1 else views
        if groups > len(shares):
            raise InputError(f"expected a share for each of {views} views, got {len(shares)}")
        source = [share == 1 and layer not in self.middle for share in shares[:groups]]
        share = layer.running_mean.new_tensor(shares[:groups] if groups > 1 else shares[0])
        return self._mixed(layer, in_groups(layer, x, source), share, sync.rows(x) // views)

    def _mixed(self, layer: Any, found: Moments, share: Tensor, images: int) -> Moments:
        """The images' own statistics, mixed with `share` of the stored ones."""
        share = share if share.ndim == 0 else share[:, None]
        return mixture(found, (layer.running_mean, layer.running_var), share)

    def _scales(self, layer: Any, groups: int) -> Scales:
        """What a layer multiplies by and adds, in each group or in all."""
        return scales_of(layer, groups)


class _Window(_Share):
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

    def _mixed(self, layer: Any, found: Moments, share: Tensor, images: int) -> Moments:
        total = min(self._images + images, max(self.options.window, images))
        part = slice(len(found[0])) if found[0].ndim > 1 else slice(None)  # as many views as came
        names = [f"{name}_{self.places[layer]}" for name in ("mean", "variance")]
        before = self._before[names[0]][part], self._before[names[1]][part]
        stream = mixture(found, before, found[0].new_tensor(1 - images / total))
        for name, value in zip(names, stream, strict=True):
            self.get_buffer(name)[part] = value.detach()
        self.images.fill_(total)
        if layer in self.middle and self.anchor is not None and self.anchor < len(found[0]):
            self._follow((found[0][self.anchor], found[1][self.anchor]), images)
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


class _Views(_Share):
    """Every view as if it had a forward of its own."""

    by_view = True

    def words(self, views: int) -> str:
        return "batch of each view"

    def _mix(self, views: int, layer: Any, x: Tensor) -> Moments:
        return in_groups(layer, x, [False] * views)


class _Prior(Policy):
    """MEMO's: the forward counts as one image, however many views of that there are."""

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    predicting = feeding

    def words(self, views: int) -> str:
        return f"prior {self.options.prior:g}"

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mean, variance = unbiased(inputs[0])
        weight = 1 / (1 + self.options.prior)
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), weight)
        variance = layer.running_var.lerp(variance.to(layer.running_var), weight)
        return (moved(layer, inputs[0], mean, variance), *inputs[1:])


class _Robust(Policy):
    """RoTTA's: the gradient of an adapting forward goes through its part of the statistics."""

    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._mix)

    def _mix(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        mean, variance = biased(inputs[0])
        mean = layer.running_mean.lerp(mean.to(layer.running_mean), self.options.momentum)
        variance = layer.running_var.lerp(variance.to(layer.running_var), self.options.momentum)
        # New tensors: a graph may still need the old ones.
        layer.running_mean, layer.running_var = mean.detach(), variance.detach()
        return (moved(layer, inputs[0], mean, variance), *inputs[1:])


class _Instance(Policy):
    """IABN, of NOTE."""

    moves = True

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, partial(self._corrected, True))

    def predicting(self, views: int = 1) -> Forward:
        return hooked(self.tracking, partial(self._corrected, False))

    def _corrected(
        self, feeding: bool, layer: Any, inputs: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = layer.running_mean, layer.running_var
        if feeding:
            own_mean, own_variance = (part.to(mean) for part in unbiased(x))
            layer.running_mean = mean.lerp(own_mean.detach(), self.options.momentum)
            layer.running_var = variance.lerp(own_variance.detach(), self.options.momentum)
            mean, variance = own_mean, own_variance
        return (moved(layer, x, *self._of_each(x, mean, variance, layer.eps)), *inputs[1:])

    def _of_each(self, x: Tensor, mean: Tensor, variance: Tensor, eps: float) -> Moments:
        """The statistics [B, C] of each image, where they differ by more than chance would."""
        pixels = x.shape[2:].numel()
        if pixels <= 1:
            return mean, variance
        own_variance, own_mean = torch.var_mean(x.flatten(2), 2)
        spread = variance + eps
        mean = mean + self._outside(own_mean - mean, (spread / pixels).sqrt())
        chance = spread * (2 / (pixels - 1)) ** 0.5
        return mean, (variance + self._outside(own_variance - variance, chance)).relu()

    def _outside(self, distance: Tensor, chance: Tensor) -> Tensor:
        """What of a distance is more than so many standard deviations."""
        return distance.sign() * (distance.abs() - self.options.deviations * chance).relu()


class _InstanceBatch(_Instance):
    moves = False

    def feeding(self, views: int = 1) -> Forward:
        return hooked(self.tracking, self._by_the_batch)

    predicting = feeding

    def _by_the_batch(self, layer: Any, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        mean, variance = (part.to(layer.running_mean) for part in unbiased(x))
        return (moved(layer, x, *self._of_each(x, mean, variance, layer.eps)), *inputs[1:])


POLICIES: Registry[type[Policy]] = Registry(
    "statistics",
    {
        "source": _Source,
        "batch": _Batch,
        "running": _Running,
        "cumulative": _Cumulative,
        "apart": _Apart,
        "blend": _Blend,
        "share": _Share,
        "window": _Window,
        "views": _Views,
        "prior": _Prior,
        "robust": _Robust,
        "instance": _Instance,
        "instance-batch": _InstanceBatch,
    },
)
