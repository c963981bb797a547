"""What every adapter is: a module called like the model, with one hook for the method."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from tapr import rng
from tapr.adapters.checks import check_images, explain_failure
from tapr.adapters.cost import Cost, Passes, predicted
from tapr.errors import ModelError, StateError
from tapr.models import state
from tapr.models.layout import LAYOUTS, Layout, arrange, matching, probe
from tapr.models.output import logits_of
from tapr.models.scope import Scope, select
from tapr.types import Prediction

log = logging.getLogger("tapr")


class Adapter(nn.Module, ABC):
    """Adapts a copy of a model while it predicts. A method is a subclass with `adapt`.

    Everything that may move is declared: the parameters in `scope`, every buffer, and `generator`.
    `reset`, `save` and the guard follow from that.
    """

    refusals: Tensor
    passes = Passes(forward=1, backward=0)
    together = 1  # images in one forward, for each image predicted

    def __init__(
        self,
        model: nn.Module,
        *,
        scope: Scope | None = None,
        seed: int = 0,
        inplace: bool = False,
        layout: Layout = "kept",
    ) -> None:
        super().__init__()
        LAYOUTS[layout]
        if not isinstance(model, nn.Module):
            raise ModelError(f"expected a torch.nn.Module, got {type(model).__name__}")
        if any(isinstance(layer, torch.jit.ScriptModule) for layer in model.modules()):
            raise ModelError(
                "expected a model of Python modules, got one that torch.jit scripted or traced,"
                " whose layers cannot be reached; pass the model it was made from"
            )
        moving = set(select(model, scope)) if scope else set()
        self.model = model if inplace else _copy(model)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in moving)
        for buffer in self.model.buffers():
            if 0 in buffer.stride():  # expanded: its elements share memory, none could be put back
                buffer.data = buffer.data.contiguous()
        self.model.eval()
        self.layout = layout
        arrange(self.model, layout)
        self.generator = rng.generator(seed, "views")
        self.register_buffer("refusals", torch.tensor(0))
        self.recipe: Mapping[str, object] = {}
        self._source: dict[str, Tensor] | None = None
        self._source_hash: str | None = None
        self._start: dict[str, Tensor] = {}
        self._mark: dict[str, Tensor] = {}
        self._good = self._start

    @property
    def refused(self) -> int:
        """Steps refused by the guard since the start or the last reset."""
        return int(self.refusals)

    @abstractmethod
    def adapt(self, images: Tensor) -> Prediction:
        """Adapt on a batch of images [B, C, H, W] in [0, 1] and predict it: the method itself."""

    @final
    def predict(self, images: Tensor) -> Prediction:
        """Adapt on the images and predict them. An error leaves the adapter as it was."""
        images = check_images(images, self.model)
        self.model.eval()
        if self.layout == "probe" and len(images):
            self._settle(probe(self.model, images))
        self._remember_source()
        if len(images) == 0:
            with torch.no_grad():
                logits = self.logits(images.new_zeros(1, *images.shape[1:]))[:0]
            return Prediction(logits, None, {}, steps=0, kept=0, refused=0)
        drawn = self.generator.get_state()
        self._good = self._start = state.snapshot(self.live(), self._start)
        try:
            return self.adapt(images)
        except BaseException:
            self.put(self._start)
            self.generator.set_state(drawn)
            raise

    @final  # type: ignore[misc]
    def forward(self, images: Tensor) -> Tensor:
        """Adapt on the images and return their logits: a drop-in for the model."""
        return self.predict(images).logits

    @final
    def reset(self) -> None:
        """Return to the source model: parameters, statistics, optimiser, generator, counters."""
        if self._source is not None:
            self._load(self._source)

    @final
    def logits(self, images: Tensor) -> Tensor:
        """Run the model and find its logits [B, K]."""
        try:
            output = self.model(matching(self.model, images, self.layout))
        except (RuntimeError, ValueError) as error:
            explain_failure(error, images, self.model)
            raise
        return logits_of(output, len(images))

    @final
    def cost(self, shape: Sequence[int]) -> Cost:
        """What a batch of images of this shape [B, C, H, W] will cost; measured on one image."""
        return predicted(self.model, self.passes, self.together, shape, self.held())

    def held(self) -> int:
        """Bytes of the copies of what moves: the source's, and the start of the batch."""
        return 2 * sum(tensor.nbytes for tensor in Adapter.live(self).values())

    def live(self) -> dict[str, Tensor]:
        """Everything that may move, but for the generator, by name."""
        moving = {name: p for name, p in self.named_parameters() if p.requires_grad}
        return {**moving, **dict(self.named_buffers())}

    def put(self, saved: Mapping[str, Tensor]) -> None:
        """Put saved values back into what `live` names."""
        state.restore(self.live(), saved)

    @final
    def mark(self) -> None:
        """Call this moment good: `refuse` returns to it. The start of a batch is good already."""
        self._good = self._mark = state.snapshot(self.live(), self._mark)

    @final
    def refuse(self, why: str) -> None:
        """Take back what happened since the last good moment, and count it: the guard."""
        count = self.refusals + 1
        self.put(self._good)
        self.refusals.copy_(count)
        log.warning("a step was refused and taken back: %s", why)

    def save(self, path: Path | str) -> None:
        """Write the adapted state, from which `tapr.load(path, model)` goes on elsewhere."""
        self._remember_source()
        metadata = {
            "recipe": self.recipe,
            "source": self._fingerprint(),
            "layout": self.layout,
        }
        state.write(path, self._capture(), metadata)

    def load(self, path: Path | str) -> Self:
        """Go on from a saved state of the same method on the same source model."""
        tensors, metadata = state.read(path)
        self._remember_source()
        if metadata.get("source") != self._fingerprint():
            raise StateError(
                f"{path} was saved from another source model than this one: expected the same"
                " architecture with the same weights, before adaptation"
            )
        _check_fit(path, tensors, self._capture())
        if self.layout == "probe":
            self._settle(LAYOUTS[str(metadata.get("layout", "probe"))])
        self._load(tensors)
        return self

    def get_extra_state(self) -> dict[str, Tensor]:
        """What `state_dict` holds besides parameters and buffers: generator, optimiser."""
        own = Adapter.live(self)
        return {name: tensor for name, tensor in self._capture().items() if name not in own}

    def set_extra_state(self, extra: Mapping[str, Tensor]) -> None:
        """Put back what `get_extra_state` gave."""
        self._load({**state.snapshot(Adapter.live(self)), **extra})

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        """Go on from a `state_dict`; `reset` still returns to the source model."""
        self._remember_source()
        return super().load_state_dict(*arguments, **options)

    def train(self, mode: bool = True) -> Self:
        """Do nothing: the adapter itself decides which layer is in which mode, at every forward."""
        return self

    def _settle(self, layout: Layout) -> None:
        """Take the layout that was found here, or where the state was saved, for good."""
        arrange(self.model, layout)
        self.layout = layout
        if "layout" in self.recipe:
            self.recipe = {**self.recipe, "layout": layout}

    def _capture(self) -> dict[str, Tensor]:
        return {**state.snapshot(self.live()), "generator": self.generator.get_state()}

    def _load(self, saved: Mapping[str, Tensor]) -> None:
        self.put(saved)
        self.generator.set_state(saved["generator"])

    def _remember_source(self) -> None:
        if self._source is None:
            self._source = self._capture()

    def _fingerprint(self) -> str:
        """A hash of the source model: what moves as it was at first, the rest as it is."""
        if self._source_hash is None:
            assert self._source is not None
            own = {**dict(self.named_parameters()), **dict(self.named_buffers())}
            source = {name: self._source.get(name, tensor) for name, tensor in own.items()}
            self._source_hash = state.fingerprint(source)
        return self._source_hash


def _copy(model: nn.Module) -> nn.Module:
    try:
        return deepcopy(model)
    except Exception as error:
        raise ModelError(
            f"the model cannot be copied ({error}); pass inplace=True to adapt it itself"
        ) from error


def _check_fit(
    path: Path | str, saved: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> None:
    """Refuse a state that lacks a tensor, has one too many, or one of another shape."""
    memory = tuple(f"optimizer.{name}." for name in expected)
    for name, tensor in expected.items():
        if name not in saved:
            raise StateError(f"{path} does not fit: expected a tensor {name!r}, found none")
        if saved[name].shape != tensor.shape:
            raise StateError(
                f"{path} does not fit: expected {name!r} of shape {list(tensor.shape)}, got"
                f" {list(saved[name].shape)}"
            )
    surplus = [name for name in saved if name not in expected and not name.startswith(memory)]
    if surplus:
        raise StateError(
            f"{path} does not fit: {surplus[0]!r} and {len(surplus) - 1} more are not adapted here;"
            " was it saved by another method or scope?"
        )
