"""Choose a method for images without labels: try candidates on a sample and rank them.

The criterion is the guard's (`tapr.adapters.health`). A witness predicts two views of every image
with the source model and anchored statistics; the more probability it gives to the classes that a
candidate predicts, the better. docs/health.md studies how well that ranks methods, and which
methods it favours.
"""

import math
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tapr import methods
from tapr.adapters import Adapter, Passes
from tapr.adapters.shadow import Said, Shadow
from tapr.errors import DataError, InputError, TaprError
from tapr.runs import listing, preprocess
from tapr.runs.device import usable
from tapr.runs.folder import Reader

CANDIDATES = ("source", "steady", "norm", "norm:statistics=running", "tent", "roid", "shot", "lame")
LEAST = 64  # the least number of images to choose by
NO_WITNESS = (
    "the model has no batch-norm layers, so that the source model itself, on other views, is the"
    " judge and favours itself: the ranking of methods that learn means little"
)


class Candidate(NamedTuple):
    """The result of a method on the sample."""

    method: str  # with its options: a variant
    credit: float  # the witness's belief in it, minus that in the source model; from -1 to 1
    chance: float  # the standard error of that
    changed: float  # the share of images for which it predicts another class than the source model
    passes: Passes  # of an image through the model, at most
    seconds: float  # for the sample, on this machine


class Choice(NamedTuple):
    """The candidates, the best first; `str` makes a table of them."""

    candidates: list[Candidate]
    images: int
    refused: dict[str, str]  # candidates that cannot be used with this model, and why
    notes: list[str]

    @property
    def best(self) -> Candidate:
        """The method to use; `source` means that the model is best left as it is."""
        return self.candidates[0]

    @property
    def sure(self) -> str:
        """How far the best is ahead of the next one, in words."""
        if len(self.candidates) < 2:
            return "it is the only candidate"
        first, second = self.candidates[:2]
        lead = first.credit - second.credit
        chance = max(first.chance, second.chance)
        words = "clearly" if lead > 3 * chance else "probably" if lead > chance else "hardly"
        return f"{words} ahead of {second.method} (by {lead:+.1%}, standard error {chance:.1%})"

    def __str__(self) -> str:
        wide = max(len(each.method) for each in self.candidates)
        head = f"{'method':{wide}}  credit  +-      changed  forward  backward  seconds"
        rows = [
            f"{c.method:{wide}}  {c.credit:+6.1%}  {c.chance:5.1%}  {c.changed:6.1%}"
            f"  {c.passes.forward:8d}  {c.passes.backward:8d}  {c.seconds:7.1f}"
            for c in self.candidates
        ]
        ends = [f"not usable: {name}: {why}" for name, why in self.refused.items()]
        ends += [f"note: {note}" for note in self.notes]
        return "\n".join([head, *rows, *ends, f"{self.best.method}: {self.sure}"])


def choose(
    model: nn.Module,
    images: Tensor,
    /,
    *,
    candidates: Sequence[str] = CANDIDATES,
    batch_size: int = 64,
    seed: int = 0,
    **preprocessing: Any,
) -> Choice:
    """Try methods on unlabelled images [N, C, H, W] in [0, 1], in this order, and rank them.

    Candidates are variants such as `tent:lr=0.01`; the unadapted model is always among them.
    `mean`, `std`, `images` and `preprocessing` are those of `tapr.adapt`.
    """
    if len(images) < LEAST:
        raise InputError(f"expected at least {LEAST} images to choose by, got {len(images)}")
    if batch_size < 1:
        raise InputError(f"expected a batch size of at least 1, got {batch_size}")
    batches = [images[start : start + batch_size] for start in range(0, len(images), batch_size)]
    source = methods.adapt(model, "source", **preprocessing)
    source(batches[0][:1])  # checks the images before anything is tried
    shadow = Shadow(source.model)
    told = [shadow(source, source.pixels(batch)) for batch in batches]
    tried: list[Candidate] = []
    refused: dict[str, str] = {}
    for variant in dict.fromkeys(["source", *candidates]):
        try:
            adapter = methods.adapt(model, variant, guard="off", seed=seed, **preprocessing)
            tried.append(_tried(variant, adapter, batches, told))
        except TaprError as error:
            refused[variant] = str(error)
    tried.sort(key=lambda each: -each.credit)
    notes = [] if shadow.norms.tracking else [NO_WITNESS]
    return Choice(tried, len(images), refused, notes)


def sample(
    source: str,
    model: str,
    architecture: str | None = None,
    images: int = 512,
    shuffle: bool = False,
    seed: int = 0,
    device: str = "auto",
    settings: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, Tensor]:
    """A model by name, and the first images of a list in its preprocessing, as in `tapr adapt`."""
    device = str(usable(device))
    prepared = preprocess.prepared(model, architecture, settings, device)
    listed = listing.find(source, shuffle=shuffle, seed=seed)
    names = list(islice(listed.names, images))
    read = Reader(listed.root, prepared.fit, images).read(names)
    if read.pixels is None:
        name, why = next(iter(read.errors.items()), ("none", "the list is empty"))
        raise DataError(f"none of the first {len(names)} images can be read: {name}: {why}")
    return prepared.model, read.images.to(device)


def _tried(variant: str, adapter: Adapter, batches: list[Tensor], told: list[Said]) -> Candidate:
    began = time.perf_counter()
    classes = torch.cat([adapter.predict(batch).logits.argmax(1) for batch in batches])
    seconds = time.perf_counter() - began
    source = torch.cat([said.source for said in told]).argmax(1)
    witness = torch.cat([said.witness for said in told])
    believed = witness.gather(1, torch.stack([classes, source], 1))
    d = believed[:, 0] - believed[:, 1]
    chance = float(d.std(correction=0)) / math.sqrt(len(d))
    changed = float((classes != source).float().mean())
    return Candidate(variant, float(d.mean()), chance, changed, adapter.passes, seconds)
