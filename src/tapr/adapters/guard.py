"""The guard: it keeps numbers that are not finite out of the model, and reports or limits harm.

The guard always rolls back a step that is not finite. Beyond that it has three modes. `off` does
nothing more. `watch` runs the source model on one image in eight and reports how the adapted model
compares with it (`health`); no prediction changes. `act` compares every image, and on signs of harm
it takes the first of these actions, or the next one where the one before did not help:

1. the answer to the batch is the vote of the source model, which is safer (`answered`);
2. also, nothing is learnt from the batch: the state is rolled back (`unlearnt`);
3. the adaptation restarts from the source model (`restarted`).
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
EVERY = 8  # `watch` compares one image in so many
TOGETHER = 32  # images that it compares at once, or all of a smaller batch
WINDOW = {"watch": 125.0, "act": 500.0}  # how many compared images are remembered
PATIENCE = 256  # after so many images of harm in a row the adaptation restarts
ACTIONS = {
    "": "",
    "answered": "; the source model's vote answered",
    "unlearnt": "; the source model's vote answered, and nothing was learnt from the batch",
    "restarted": "; the source model's vote answered, and the adaptation was restarted",
}
Memory = list[tuple[nn.Module, dict[str, Tensor | None]]]


class NotFinite(Exception):  # noqa: N818  # it ends a step, and is never raised to callers
    """Raised within `Guard.step` when something is not finite; the message says what."""


class Guard(nn.Module):
    """Rolls an adapter back when a step is not finite, watches its health, and acts on harm."""

    refusals: Tensor  # since the start or the last reset
    seen: Tensor  # the number of images
    asked: Tensor  # how many of these were compared with the source model
    harmed: Tensor  # the number of images of harm in a row

    def __init__(self, mode: Mode = "off", model: nn.Module | None = None) -> None:
        super().__init__()
        self.mode = MODES[mode]
        self.register_buffer("refusals", torch.tensor(0))
        self.refused = 0  # steps in the present batch
        self.start: Moment | None = None  # the state before the present batch
        self.health: Health | None = None  # the last verdict
        self.blind = False  # whether the model fails on views, so that nothing can be compared
        self._learning: list[str] | None = None  # the model's parameters that move
        self._marked: Moment | None = None
        self._good: Moment | None = None
        self.shadow: Shadow | None = None
        self.comparison: Comparison | None = None
        if mode != "off" and model is not None:
            self.shadow = Shadow(model)
            self.comparison = Comparison(WINDOW[mode])
            for name in ("seen", "asked", "harmed"):
                self.register_buffer(name, torch.tensor(0))

    def dismiss_shadow(self) -> None:
        """Do not run the source model: it is one of the adapter's own voters (`as_voters`)."""
        self.shadow = None

    def begin(self, adapter: "Adapter") -> None:
        """Note the state at the start of a batch, to which a rollback returns."""
        self.start = self._good = adapter.capture(self.start)
        self.refused = 0

    def mark(self, adapter: "Adapter") -> None:
        """Note the present state as good: the next rollback returns to it."""
        self._good = self._marked = adapter.capture(self._marked)

    @contextmanager
    def step(self, adapter: "Adapter", *, first: bool = True) -> Iterator[None]:
        """A context around a step: on `NotFinite` the step is rolled back."""
        if not first:  # the first step returns to the start of the batch, or to what was marked
            self.mark(adapter)
        try:
            yield
        except NotFinite as trouble:
            self.roll_back(adapter, str(trouble))

    def roll_back(self, adapter: "Adapter", why: str, *, to: Moment | None = None) -> None:
        """Return to the last good state, or to another one, and count the refusal."""
        moment = to or self._good
        assert moment is not None
        with self.remembering():
            adapter.put_back(moment, generators=False)  # the next batch draws new views
        self.refusals.add_(1)
        self.refused += 1
        log.warning("a step was refused and rolled back: %s", why)

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Within this context the guard keeps its memory, whatever happens to the adapter."""
        memory = self._memory()
        yield
        _recall(memory)

    def judge(self, adapter: "Adapter", images: Tensor, prediction: Prediction) -> Prediction:
        """Judge a prediction and add its health; in `act`, replace the answer on harm."""
        if self.comparison is None or self.blind:
            return prediction
        if show_nothing(images, _share(adapter, images)) > 0.5:
            return self._nothing_shown(adapter, images, prediction)
        own = adapter.as_voters(prediction.logits)
        count = len(prediction.logits)
        places = self._places(count, 1 if self.mode == "act" or own else EVERY)
        if not len(places):
            return prediction
        few, share = _some(adapter, images, places)
        said = own or self._ask(adapter, few, share)
        if said is None:
            return prediction
        apart = self.shadow is None or bool(self.shadow.norms.tracking)
        health = self.comparison(prediction.logits[places], said, apart=apart)
        if not all_finite(self._remembered()):
            self._forget_batch()  # the logits of some image are not finite: nothing to compare
            return prediction
        health = health._replace(distance=self._distance(adapter))
        asked = 0 if own else len(VOTERS) * len(places)
        if self.mode == "act":
            safe = prediction.logits if own else said.answer
            health, logits = self._act(adapter, health, prediction.logits, safe)
            prediction = prediction._replace(logits=logits)
        return self._told(health, prediction._replace(shadow=asked))

    def _places(self, images: int, every: int) -> Tensor:
        """The images to compare: one in `every` of the stream, evenly spaced in a batch.

        A few at a time cost as much as many, so that images that are due wait for others.
        """
        seen, asked = int(self.seen) + images, int(self.asked)
        due = min(seen // every - asked, images)
        if asked and due < min(TOGETHER, images):
            due = 0
        self.seen.add_(images)
        self.asked.add_(due)
        return torch.arange(due, device=self.seen.device) * images // max(due, 1)

    def _ask(self, adapter: "Adapter", images: Tensor, share: Share | None) -> Said | None:
        if self.shadow is None:
            return None
        try:
            said: Said = self.shadow(adapter, images, share)
        except (MemoryError, torch.OutOfMemoryError, SyncError):
            raise
        except Exception as error:
            if self.mode == "act":
                raise
            self.blind = True
            log.warning("the health is not known: the model fails on views of images: %s", error)
            return None
        return said

    def _nothing_shown(
        self, adapter: "Adapter", images: Tensor, prediction: Prediction
    ) -> Prediction:
        """The reaction to images of one colour or of noise, from which nothing can be learnt."""
        health = Health("harm", "most of the images show nothing: one colour, or only noise")
        if self.mode == "act":
            self._unlearn(adapter)
            logits = ask(adapter, images, _share(adapter, images)).to(prediction.logits.dtype)
            prediction = prediction._replace(logits=logits, shadow=len(logits))
            health = health._replace(action="unlearnt")
        return self._told(health, prediction)

    def _act(
        self, adapter: "Adapter", health: Health, logits: Tensor, safe: Tensor
    ) -> tuple[Health, Tensor]:
        """Take the next action; return the health with it, and the answer."""
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
            assert self.comparison is not None
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

    def _remembered(self) -> list[Tensor]:
        parts = [self.comparison, *(self.shadow.children() if self.shadow else ())]
        found = (tensor for part in parts if part for tensor in part._buffers.values())
        return [tensor for tensor in found if tensor is not None and tensor.is_floating_point()]

    @torch.no_grad()
    def _distance(self, adapter: "Adapter") -> float:
        """The distance of the parameters from the source model's, relative to their length."""
        source = adapter.source.tensors
        if self._learning is None:
            named = adapter.model.named_parameters(prefix="model")
            self._learning = [name for name, _ in named if name in source]
        if not self._learning:
            return 0.0
        here: list[Tensor] = [adapter.get_parameter(name) for name in self._learning]
        there = [source[name].to(p) for name, p in zip(self._learning, here, strict=True)]
        length = nn.utils.get_total_norm(there)
        moved = nn.utils.get_total_norm(torch._foreach_sub(here, there))
        return float(moved / length.clamp(min=1e-12))

    def _forget_batch(self) -> None:
        """Return the guard's memory to what it was when the batch began."""
        assert self.start is not None
        for prefix, module in self.named_modules(prefix="guard"):
            for key in module._buffers:
                before = self.start.tensors.get(f"{prefix}.{key}")
                module._buffers[key] = None if before is None else before.clone()

    def _memory(self) -> Memory:
        return [
            (module, {k: None if b is None else b.clone() for k, b in module._buffers.items()})
            for module in self.modules()
        ]


def _share(adapter: "Adapter", images: Tensor) -> Share | None:
    """Which of a batch's images each process has, if several share them."""
    return adapter.spread.share(len(images)) if adapter.spread else None


def _some(adapter: "Adapter", images: Tensor, places: Tensor) -> tuple[Tensor, Share | None]:
    """The images at these places, and which of them each process has, if several share them."""
    if adapter.spread:
        return adapter.spread.some(images, places)
    return (images if len(places) == len(images) else images[places]), None


def _recall(memory: Memory) -> None:
    for module, buffers in memory:
        module._buffers.update(buffers)
