"""The guard: what is not finite never stays in the model, and harm is seen, or answered.

A step that is not finite is rolled back, always. Beyond that there are three modes. `off` looks at
nothing. `watch` asks the source model about one image in eight and tells how the adapted model
does beside it (`health`); no number changes. `act` asks about every image, and on signs of harm
takes the steps of a short ladder, the next one where the one before did not help:

1. the answer to the batch is the source model's own vote, the safer one (`answered`);
2. nothing is learnt from the batch: all is as it was before it (`unlearnt`);
3. the adapter begins anew from the source model (`restarted`).
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from tapr.adapters.health import ENOUGH, Comparison, show_nothing
from tapr.adapters.moving import Moment
from tapr.adapters.shadow import VOTERS, Said, Shadow, ask
from tapr.errors import SyncError
from tapr.models.state import all_finite
from tapr.registry import Registry
from tapr.sync import Share
from tapr.types import Health, Prediction

if TYPE_CHECKING:
    from tapr.adapters.adapter import Adapter

log = logging.getLogger("tapr")
Mode = Literal["off", "watch", "act"]
MODES: Registry[Mode] = Registry("guard", {mode: mode for mode in get_args(Mode)})
EVERY = 8  # `watch` asks about one image in so many
WINDOW = {"watch": 125.0, "act": 500.0}  # images compared that are remembered
PATIENCE = 256  # images of harm in a row, from which the adapter begins anew
ACTIONS = {
    "": "",
    "answered": "; the source model's vote answered",
    "unlearnt": "; the source model's vote answered, and nothing was learnt from the batch",
    "restarted": "; the source model's vote answered, and adaptation began anew",
}
Memory = list[tuple[nn.Module, dict[str, Tensor | None]]]


class NotFinite(Exception):  # noqa: N818  # it ends a step, and reaches nobody
    """Raised within `Guard.step` when something is not finite; the message says what."""


class Guard(nn.Module):
    """Rolls an adapter back when a step was not finite; watches its health, and acts on it."""

    refusals: Tensor  # since the start or the last reset
    seen: Tensor  # images, of which one in `EVERY` was asked about
    harmed: Tensor  # images in a row

    def __init__(self, mode: Mode = "off", model: nn.Module | None = None) -> None:
        super().__init__()
        self.mode = MODES[mode]
        self.register_buffer("refusals", torch.tensor(0))
        self.refused = 0  # in the batch at hand
        self.start: Moment | None = None  # of the batch at hand
        self.health: Health | None = None  # the last that was told
        self.blind = False  # can the model not be asked?
        self._marked: Moment | None = None
        self._good: Moment | None = None
        self.shadow: Shadow | None = None
        if mode != "off" and model is not None:
            self.shadow = Shadow(model)
            self.comparison = Comparison(WINDOW[mode])
            self.register_buffer("seen", torch.tensor(0))
            self.register_buffer("harmed", torch.tensor(0))

    def begin(self, adapter: "Adapter") -> None:
        """A batch begins: this moment is good."""
        self.start = self._good = adapter.capture(self.start)
        self.refused = 0

    def mark(self, adapter: "Adapter") -> None:
        """Call this moment good: the next rollback returns to it."""
        self._good = self._marked = adapter.capture(self._marked)

    @contextmanager
    def step(self, adapter: "Adapter", *, first: bool = True) -> Iterator[None]:
        """Around a step: on `NotFinite` the adapter is as it was before it."""
        if not first:  # before the first step lies the start of the batch, or what was marked
            self.mark(adapter)
        try:
            yield
        except NotFinite as trouble:
            self.roll_back(adapter, str(trouble))

    def roll_back(self, adapter: "Adapter", why: str, *, to: Moment | None = None) -> None:
        """Return to the last good moment, or to another one, and count it."""
        moment = to or self._good
        assert moment is not None
        with self.remembering():
            adapter.put_back(moment, generators=False)  # the next batch draws views of its own
        self.refusals.add_(1)
        self.refused += 1
        log.warning("a step was refused and rolled back: %s", why)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Whatever becomes of the adapter within, the guard keeps what it remembers."""
        memory = self._memory()
        yield
        _recall(memory)

    def judge(self, adapter: "Adapter", images: Tensor, prediction: Prediction) -> Prediction:
        """Look at a prediction and tell the health; in `act`, answer for harm and take it back."""
        if self.shadow is None or self.blind:
            return prediction
        own = adapter.as_voters(prediction.logits)
        count = len(prediction.logits)
        places = self._places(count, 1 if self.mode == "act" or own else EVERY)
        if not len(places):
            return prediction
        few, share = _some(adapter, images, places)
        if show_nothing(few, share) > 0.5:
            return self._nothing_shown(adapter, images, prediction)
        memory = self._memory()
        said = own or self._ask(adapter, few, share)
        if said is None:
            return prediction
        health = self.comparison(
            prediction.logits[places], said, apart=bool(self.shadow.norms.tracking)
        )
        if not all_finite([t for t in self.buffers() if t.is_floating_point()]):
            _recall(memory)  # the logits of some image are not finite: there is nothing to compare
            return prediction
        health = health._replace(distance=_distance(adapter))
        asked = 0 if own else len(VOTERS) * len(places)
        if self.mode == "act":
            safe = prediction.logits if own else said.answer
            health, logits = self._act(adapter, health, prediction.logits, safe)
            prediction = prediction._replace(logits=logits)
        return self._told(health, prediction._replace(shadow=asked))

    def _places(self, images: int, every: int) -> Tensor:
        """The images to ask about: one in so many of the stream, evenly spaced in a batch."""
        before = int(self.seen)
        self.seen.add_(images)
        count = (before + images) // every - before // every
        return torch.arange(count, device=self.seen.device) * images // max(count, 1)

    def _ask(self, adapter: "Adapter", images: Tensor, share: Share | None) -> Said | None:
        assert self.shadow is not None
        try:
            said: Said = self.shadow(adapter, images, share)
        except (MemoryError, torch.OutOfMemoryError, SyncError):
            raise
        except Exception as error:
            if self.mode == "act":
                raise
            self.blind = True
            log.warning("health cannot be told: the model fails on views of images: %s", error)
            return None
        return said

    def _nothing_shown(
        self, adapter: "Adapter", images: Tensor, prediction: Prediction
    ) -> Prediction:
        """One colour, or noise: there is nothing to learn from these."""
        health = Health("harm", "most of the images show nothing: one colour, or only noise")
        if self.mode == "act":
            self._unlearn(adapter)
            share = adapter.spread.share(len(images)) if adapter.spread else None
            logits = ask(adapter, images, share).to(prediction.logits.dtype)
            prediction = prediction._replace(logits=logits, shadow=len(logits))
            health = health._replace(action="unlearnt")
        return self._told(health, prediction)

    def _act(
        self, adapter: "Adapter", health: Health, logits: Tensor, safe: Tensor
    ) -> tuple[Health, Tensor]:
        """Take the next step of the ladder; return it with the health, and the answer."""
        safe = safe.to(logits.dtype)
        if health.verdict != "harm":
            self.harmed.zero_()
            if safe is logits or (health.verdict == "ok" and health.images >= ENOUGH):
                return health, logits
            return health._replace(action="answered"), safe
        self._unlearn(adapter)
        self.harmed.add_(len(logits))
        action = "unlearnt"
        if self.harmed >= PATIENCE:
            action = "restarted"
            adapter.restart()
            self.comparison.forget()
            self.harmed.zero_()
        return health._replace(action=action), safe

    def _unlearn(self, adapter: "Adapter") -> None:
        assert self.start is not None
        with self.remembering():
            adapter.put_back(self.start, generators=False)

    def _told(self, health: Health, prediction: Prediction) -> Prediction:
        before = (self.health.verdict, self.health.action) if self.health else ("ok", "")
        if (health.verdict, health.action) != before and health.reason:
            acted = health.action and health.verdict == "harm"
            level = logging.WARNING if acted else logging.INFO
            log.log(level, "%s%s", health.reason, ACTIONS[health.action])
        self.health = health
        return prediction._replace(health=health)

    def _memory(self) -> Memory:
        return [
            (module, {k: None if b is None else b.clone() for k, b in module._buffers.items()})
            for module in self.modules()
        ]


def _some(adapter: "Adapter", images: Tensor, places: Tensor) -> tuple[Tensor, Share | None]:
    """The images at these places, and which of them each process has, if several share them."""
    if adapter.spread:
        return adapter.spread.some(images, places)
    return (images if len(places) == len(images) else images[places]), None


def _recall(memory: Memory) -> None:
    for module, buffers in memory:
        module._buffers.update(buffers)


@torch.no_grad()
def _distance(adapter: "Adapter") -> float:
    """How far the model's parameters are from the source's, in parts of the length of these."""
    source = adapter.source.tensors
    named = {f"model.{name}": p for name, p in adapter.model.named_parameters()}
    moving = {name: p for name, p in named.items() if name in source}
    if not moving:
        return 0.0
    there = [source[name].to(p) for name, p in moving.items()]
    length = nn.utils.get_total_norm(there)
    moved = nn.utils.get_total_norm(torch._foreach_sub(list(moving.values()), there))
    return float(moved / length.clamp(min=1e-12))
