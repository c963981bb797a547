"""The base of every adapter: a module that is called like the model, with one hook, `adapt`."""

import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, final

import torch
from torch import Tensor, nn

from tapr import rng, sync
from tapr.adapters import moving, syncing
from tapr.adapters.checks import RANGES, check_images, explained
from tapr.adapters.cost import Cost, Passes, Sizes, predicted
from tapr.adapters.guard import MODES, Guard, Mode
from tapr.adapters.moving import Moment
from tapr.adapters.needs import Needs, check_model, copied, own_memory
from tapr.adapters.shadow import Said
from tapr.errors import InputError, StateError
from tapr.models import inputs, shared, state
from tapr.models.contract import Given
from tapr.models.layout import LAYOUTS, Layout, arrange, probe
from tapr.models.output import answers
from tapr.models.scope import Scope, select
from tapr.sync import Batch, Sync
from tapr.types import Health, Prediction

log = logging.getLogger("tapr")
LARGEST = 1e38  # the largest number that an optimiser may hold
Observer = Callable[[Prediction], object]
HUGGING_FACE = ("can_generate", "config", "device", "dtype", "main_input_name")
UNKNOWN = -1  # the number of batches while a failed one is rolled back


class Adapter(nn.Module, ABC):
    """Adapts a copy of a model while it predicts. A method is a subclass with `adapt`.

    Adaptation may change every tensor of the adapter and its parts, except the model's frozen
    parameters. `reset`, `save`, `load`, `deepcopy` and the rollback after an error cover exactly
    these tensors. Several threads may call an adapter: their calls take turns.

    In a `torch.distributed` group all processes adapt together, each on its own images, as one
    process would on all of them (docs/torchrun.md); with `sync=False` each adapts on its own.
    """

    title: ClassVar[str] = ""  # as tables and figures show it; the class's name if empty
    paper: ClassVar[str] = ""  # who published it, where and when
    needs: ClassVar[Needs] = Needs()
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # beside the defaults, called "paper"
    adapts: ClassVar[bool] = True  # False for the unadapted model: the baseline
    only_own = False  # whether images only go through the model: then processes keep their own

    def __init__(
        self,
        model: nn.Module,
        scope: Scope | None = None,
        *,
        seed: int = 0,
        inplace: bool = False,
        layout: Layout = "kept",
        guard: Mode = "watch",
        sync: Sync = "auto",
    ) -> None:
        super().__init__()
        LAYOUTS.check(layout)
        MODES.check(guard)
        syncing.check(sync)
        model = syncing.unwrapped(model)
        check_model(model, self.needs)
        inside = set() if scope is None else set(select(model, scope))
        self.model = model if inplace else copied(model)
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(name in inside)
        own_memory(self.model)
        self.frozen = {f"model.{n}" for n, _ in self.model.named_parameters() if n not in inside}
        self.model.eval()
        self.layout = layout
        arrange(self.model, layout)
        self.generator = rng.generator(seed, "views")
        self.sync = sync
        self.spread: Batch | None = None  # the present batch, if processes share it
        self.guard = Guard(guard if self.adapts else "off", self.model)
        self.recipe: Mapping[str, object] = {}
        self.takes: Given = "pixels"  # the images that callers give: these, or "normalized"
        self._answers = answers(None)
        self.batches = 0  # predicted so far; `reset` and `load` do not change the count
        self._source: Moment | None = None
        self._source_hash: str | None = None
        self._counts = [0, 0]  # images forward and backward in the present batch
        self._observers: dict[object, Observer] = {}
        self._turn = threading.RLock()
        self._process = os.getpid()

    @property
    def refused(self) -> int:
        """Steps that the guard rolled back since the start or the last reset."""
        return int(self.guard.refusals)

    @final
    def health(self) -> Health | None:
        """How the adapted model compares with the source model, at the last batch compared.

        None before that, and with `guard="off"`. docs/health.md says what the numbers mean.
        """
        return self.guard.health

    @property
    def passes(self) -> Passes:
        """The cost of the method, at most: passes through the model for each image predicted."""
        return Passes(forward=1, backward=0)

    @property
    def together(self) -> int:
        """The images in one forward pass, for each image predicted."""
        return 1

    @property
    def copies(self) -> int:
        """How many copies of a batch's views are in memory while they are made."""
        return 1

    @property
    def alone(self) -> bool:
        """Whether each image of a batch goes through the model on its own, with its views."""
        return False

    @property
    def policy(self) -> str:
        """In words, which batch-norm statistics are used to predict."""
        return "source"

    @abstractmethod
    def adapt(self, images: Tensor) -> Prediction:
        """Adapt on a batch of images [B, C, H, W] in [0, 1] and predict it: the method itself."""

    @final
    def predict(self, images: Tensor) -> Prediction:
        """Adapt on the images and predict them. An error leaves the adapter as it was."""
        with self._turn:
            prediction = self._predict(images)
            for observer in list(self._observers.values()):
                try:
                    observer(prediction)
                except Exception:
                    log.exception("an observer failed; the prediction stands")
            return prediction

    @final  # type: ignore[misc]
    def forward(
        self,
        images: Tensor | None = None,
        *,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> Any:
        """Adapt on the images and return their logits: a drop-in for the model.

        A model of Hugging Face is called with `pixel_values` and returns its own kind of output,
        which has a `loss` if there are `labels`. Adaptation never sees the labels.
        """
        if (images is None) == (pixel_values is None):
            raise InputError("expected images, or pixel_values, got both or neither")
        prediction = self.predict(pixel_values if images is None else images)  # type: ignore[arg-type]
        return self._answers(prediction.logits, labels)

    @final
    def observe(self, observer: Observer) -> Callable[[], None]:
        """Call `observer` with every prediction from now on; returns a function that ends this.

        If an observer fails, that is logged; the prediction and the adapter are not affected.
        """
        key = object()
        self._observers[key] = observer

        def stop() -> None:
            self._observers.pop(key, None)

        return stop

    @final
    def reset(self) -> None:
        """Return to the source model: parameters, statistics, optimiser, generator, counters."""
        with self._turn:
            if self._source is not None:
                self.put_back(self._source)
            self.guard.health = None

    @final
    def restart(self) -> None:
        """Return to the source model within a stream; generators and the guard's memory go on."""
        with self.guard.remembering():
            self.put_back(self.source, generators=False)

    @property
    def source(self) -> Moment:
        """The state before the first batch."""
        if self._source is None:
            self._complete()
            self._source = self.capture()
        return self._source

    @final
    def live(self) -> dict[str, Tensor]:
        """All tensors that adaptation may change, by name."""
        return moving.live(self, self.frozen)

    @final
    def capture(self, storage: Moment | None = None) -> Moment:
        """A copy of the state; it reuses the memory of an earlier copy where that fits."""
        return moving.capture(self, self.frozen, storage)

    @final
    def put_back(self, moment: Moment, *, generators: bool = True) -> None:
        """Return to the state of an earlier moment."""
        moving.put_back(self, self.frozen, moment, generators=generators)

    @final
    def logits(self, images: Tensor, model: nn.Module | None = None, *, views: int = 1) -> Tensor:
        """Run the model, or another one such as a teacher, and find its logits [B, K].

        The images may be several `views` of a batch, one after another. Processes that share the
        batch run a part each, and all get the logits of the whole.
        """
        model = model or self.model
        share = self.spread.share(len(images), views) if self.spread else None
        rows = share.images * views if share else len(images)
        self._counts[0] += rows
        self._counts[1] += rows * torch.is_grad_enabled()
        with explained(images, model):
            logits, self._answers = shared.logits(model, images, self.layout, share)
        return logits

    @final
    def pixels(self, images: Tensor) -> Tensor:
        """The images as the method sees them, in [0, 1]; an error says what is wrong with them."""
        normalized = inputs.find(self.model) if self.takes == "normalized" else None
        return check_images(images, self.model, normalized)

    def as_voters(self, logits: Tensor) -> Said | None:
        """The predictions of the voters for this batch, if the source model is one of them."""
        return None

    @final
    def cost(self, shape: Sequence[int]) -> Cost:
        """The cost of a batch of this shape [B, C, H, W], estimated from one image."""
        sizes = Sizes(self.together, self.copies, self.alone, self.held())
        return predicted(self.model, self.passes, shape, sizes)

    def held(self) -> int:
        """The bytes of two copies of the state: at the source, and at the start of the batch."""
        own = [p for name, p in self.named_parameters() if name not in self.frozen]
        return 2 * sum(tensor.nbytes for tensor in (*own, *self.buffers()))

    def save(self, path: Path | str) -> None:
        """Write the adapted state, from which `tapr.load(path, model)` resumes elsewhere."""
        with self._turn:
            source, now = self.source, self.capture()
            numbers = {k: v for k, v in now.numbers.items() if v != source.numbers.get(k)}
            metadata = {
                "recipe": self.recipe,
                "source": self._fingerprint(),
                "layout": self.layout,
                "numbers": numbers,
                "changed": moving.changed(source, now),
                "empty": sorted(now.empty),
            }
            state.write(path, now.tensors, metadata)

    def load(self, path: Path | str) -> Self:
        """Resume from a saved state of the same method on the same source model, or change nothing.

        Every tensor is checked before any of them is loaded.
        """
        tensors, metadata = state.read(path)
        with self._turn:
            source = self.source
            # The guard's memory may be missing in the file, or of no use here.
            known = source.tensors.keys() | source.empty
            tensors = {n: t for n, t in tensors.items() if n in known or not _is_memory(n)}
            tensors = {n: t for n, t in source.tensors.items() if _is_memory(n)} | tensors
            if metadata.get("source") != self._fingerprint():
                raise StateError(
                    f"{path} was saved from another source model than this one: expected the same"
                    " architecture with the same weights, before adaptation"
                )
            # A forward may change any buffer of the model or of a teacher's model.
            changed = _read_names(path, metadata, "changed")
            variable = {name for name in changed if ".model." in f".{name}"}
            empty = _read_names(path, metadata, "empty") | (
                source.empty - variable - tensors.keys()
            )
            empty = frozenset(n for n in empty if n in known or not _is_memory(n))
            saved = Moment(tensors, _read_numbers(path, metadata), empty)
            layout = metadata.get("layout", "kept")
            if not isinstance(layout, str) or layout not in LAYOUTS:
                raise StateError(f"{path} does not fit: it names an unknown layout, {layout!r}")
            now = self.capture()
            self.put_back(source)  # buffers that the stream has filled may have another size
            try:
                moving.check(path, saved, self, source, variable)
            except BaseException:
                self.put_back(now)
                raise
            if self.layout == "probe":
                self._settle(LAYOUTS[layout])
            self.put_back(saved._replace(numbers={**source.numbers, **saved.numbers}))
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """The part of `state_dict` besides parameters and buffers: generator, optimiser."""
        own = moving.in_state_dict(self)
        now = self.capture()
        tensors = {name: tensor for name, tensor in now.tensors.items() if name not in own}
        return {"tensors": tensors, "numbers": now.numbers}

    def set_extra_state(self, extra: Mapping[str, Any]) -> None:
        """Restore what `get_extra_state` returned."""
        moving.make_room(self, extra["tensors"], persistent=False)
        now = self.capture()
        own = moving.in_state_dict(self)
        kept = {name: tensor for name, tensor in now.tensors.items() if name in own}
        self.put_back(Moment({**kept, **extra["tensors"]}, extra["numbers"], now.empty))

    def load_state_dict(self, state_dict: Mapping[str, Any], *more: Any, **options: Any) -> Any:
        """Resume from a `state_dict`; `reset` still returns to the source model."""
        with self._turn:
            assert self.source is not None  # remembered before anything moves
            moving.make_room(self, state_dict)
            return super().load_state_dict(state_dict, *more, **options)

    def train(self, mode: bool = True) -> Self:
        """Do nothing: the adapter itself sets the mode of every layer at each forward."""
        return self

    @property
    def _ddp_params_and_buffers_to_ignore(self) -> None:
        """Refuse DistributedDataParallel, which reads this attribute first of all."""
        syncing.bare(self, "DistributedDataParallel")

    def __getattr__(self, name: str) -> Any:
        """Get from the model the attributes that pipelines of Hugging Face need."""
        if name in HUGGING_FACE and "model" in self._modules:
            model = self._modules["model"]
            return getattr(getattr(model, "model", model), name)
        return super().__getattr__(name)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_turn"}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        super().__setstate__(saved)  # type: ignore[no-untyped-call]
        self._turn, self._process = threading.RLock(), os.getpid()

    def _apply(self, *arguments: Any, **options: Any) -> Self:
        """`to`, `double`, `cuda` ...: the optimiser's memory moves with the parameters."""
        super()._apply(*arguments, **options)  # type: ignore[no-untyped-call]
        self.put_back(self.capture())
        return self

    def _complete(self) -> None:
        """Make what needs all parts of the adapter; called before the first batch."""

    def _predict(self, images: Tensor) -> Prediction:
        self._check_process()
        group = sync.group() if self.sync else None
        if group is None:
            images = self.pixels(images)
            return self._predict_batch(images, len(images))
        images, batch = syncing.gathered(self, group, images)
        self.spread = batch if batch.images else None
        try:
            prediction = self._predict_batch(images, batch.images)
            return prediction._replace(logits=prediction.logits[batch.here])
        finally:
            self.spread = None

    def _predict_batch(self, images: Tensor, count: int) -> Prediction:
        self.model.eval()
        if self.layout == "probe" and len(images):
            self._settle(probe(self.model, images))
        assert self.source is not None  # remembered before anything moves
        self.guard.begin(self)
        self._counts = [0, 0]
        began = time.perf_counter()
        batches = self.batches
        try:
            prediction = self.adapt(images) if count else self._nothing(images)
            forward, backward = self._counts
            if count:
                prediction = self.guard.judge(self, images, prediction)
            self.batches = batches + 1
        except BaseException:
            assert self.guard.start is not None
            self.batches = UNKNOWN
            self.put_back(self.guard.start)
            self.batches = batches
            raise
        return prediction._replace(
            refused=self.guard.refused,
            forward=forward,
            backward=backward,
            seconds=time.perf_counter() - began,
        )

    def _nothing(self, images: Tensor) -> Prediction:
        """The prediction of an empty batch; the model is run to learn the number of classes."""
        with torch.no_grad():
            logits = self.logits(images.new_zeros(1, *images.shape[1:]))[:0]
        assert self.guard.start is not None
        self.put_back(self.guard.start)
        self._counts = [0, 0]
        return Prediction(logits)

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise InputError(
                "expected a call in the process that made the adapter, got one in a fork of it,"
                " where torch's threads are missing; make one in the new process, or start"
                " processes with the method 'spawn'"
            )

    def _settle(self, layout: Layout) -> None:
        """Fix the layout that was found here, or where the state was saved."""
        arrange(self.model, layout)
        self.layout = layout
        if "layout" in self.recipe:
            self.recipe = {**self.recipe, "layout": layout}

    def _fingerprint(self) -> str:
        """A hash of the source model: the state as it was at first, and the frozen parameters."""
        if self._source_hash is None:
            frozen = {n: p for n, p in self.named_parameters() if n in self.frozen}
            moved = moving.own(self, self.source)
            first = {name: tensor for name, tensor in moved.items() if not _is_memory(name)}
            self._source_hash = state.fingerprint({**frozen, **first})
        return self._source_hash


def _is_memory(name: str) -> bool:
    """Whether this tensor is the guard's memory, which is no part of the model or the method."""
    return name.startswith("guard.") and name != "guard.refusals"


def _read_numbers(path: Path | str, metadata: Mapping[str, Any]) -> dict[str, float]:
    numbers = metadata.get("numbers", {})
    if not isinstance(numbers, dict):
        raise StateError(f"{path} does not fit: expected names with numbers, got {numbers!r}")
    for name, value in numbers.items():
        low, high = RANGES.get(name.rpartition(".")[2], (-LARGEST, LARGEST))
        good = isinstance(value, int | float) and not isinstance(value, bool)
        if not good or not low <= value < min(high, LARGEST):
            raise StateError(f"{path} does not fit: expected no number {name!r} = {value!r}")
    return dict(numbers)


def _read_names(path: Path | str, metadata: Mapping[str, Any], key: str) -> frozenset[str]:
    names = metadata.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise StateError(f"{path} does not fit: expected {key} as a list of names, got {names!r}")
    return frozenset(names)
