"""A spec to cells to records: each cell is one method on one stream with one seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tapr import datasets
from tapr.adapters import Adapter, Passes
from tapr.errors import ModelError
from tapr.models.output import logits_of
from tapr.models.state import fingerprint
from tapr.records import BatchRecord
from tapr.runs import catalogue
from tapr.runs.device import usable
from tapr.runs.evaluate import evaluate
from tapr.runs.spec import Spec
from tapr.runs.store import Journal
from tapr.streams import Domain, Stream, clean, corrupted
from tapr.streams.stream import as_tensor


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one stream with one seed: one run, one file."""

    label: str
    seed: int
    domains: tuple[Domain, ...]
    identity: dict[str, Any]  # the whole effective spec: what makes this run this run
    passes: Passes  # of an image through the model
    variant: str = ""  # what a sweep changed in it, for people

    @property
    def title(self) -> str:
        """The method, and what a sweep changed in it."""
        return f"{self.label} {self.variant}".strip()

    @property
    def work(self) -> float:
        """The cell's cost in forward passes of an image; a backward counts as two."""
        return (self.passes.forward + 2 * self.passes.backward) * sum(map(len, self.domains))

    @property
    def column(self) -> str:
        """The domain's name, or the stream's."""
        return self.domains[0].name if len(self.domains) == 1 else self.identity["protocol"]

    @property
    def file(self) -> str:
        """A name that people can read and that no other spec has."""
        text = json.dumps(self.identity, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        label = self.label.replace(":", ".")  # of `module:Class`
        return f"{self.column}.{label}.seed{self.seed}.{digest}.jsonl"


class Bench:
    """A spec with its data and model at hand; `cells` in the order in which they run."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self.model = catalogue.find_model(spec.model, spec.architecture)
        self.model.eval().to(usable(spec.device))
        adapters = {label: catalogue.adapt(self.model, **o) for label, o in spec.methods.items()}
        self.views = {label: repr(getattr(a, "views", None)) for label, a in adapters.items()}
        domains = _domains(spec)
        _check_classes(self.model, domains[0], spec.device)
        streams = [(domain,) for domain in domains] if spec.protocol == "each" else [tuple(domains)]
        self.cells = [
            Cell(label, seed, stream, self._identity(label, seed, stream), adapters[label].passes)
            for stream in streams
            for label in spec.methods
            for seed in spec.seeds
        ]

    def journal(self, cell: Cell) -> Journal:
        """The cell's file."""
        return Journal(self.folder / cell.file)

    def adapter(self, cell: Cell) -> Adapter:
        """A fresh adapter of the cell's method."""
        return catalogue.adapt(self.model, **self.spec.methods[cell.label], seed=cell.seed)

    def run(self, cell: Cell) -> Iterator[BatchRecord]:
        """Run a cell from where its file stands; a finished one yields nothing."""
        journal = self.journal(cell)
        if journal.finished:
            return
        adapter = self.adapter(cell)
        done = journal.resume(adapter)
        stream = Stream(
            cell.domains,
            self.spec.batch_size,
            protocol=self.spec.protocol,
            order=self.spec.order,
            seed=cell.seed,
        )
        batches = evaluate(adapter, stream, done, self.spec.device)
        yield from journal.write(cell.identity, adapter, batches)

    @cached_property
    def _model_hash(self) -> str:
        return fingerprint(self.model.state_dict())

    def _identity(self, label: str, seed: int, domains: tuple[Domain, ...]) -> dict[str, Any]:
        spec = self.spec
        return {
            "spec": spec.name,
            "data": spec.data,
            "split": spec.split,
            "origin": domains[0].origin,
            "domains": [domain.name for domain in domains],
            "images": len(domains[0]),
            "classes": list(domains[0].classes),
            "protocol": spec.protocol,
            "order": spec.order,
            "batch_size": spec.batch_size,
            "model": spec.model,
            "model_hash": self._model_hash,
            "method": label,
            "views": self.views[label],
            "recipe": catalogue.recipe(**spec.methods[label], seed=seed),
            "seed": seed,
            "device": spec.device,
        }


def _check_classes(model: nn.Module, domain: Domain, device: str) -> None:
    """Refuse labelled data of other classes than the model's: nothing could be right."""
    if domain.labels is None:
        return
    image = as_tensor(np.asarray(domain.read(domain.numbers[:1]))).to(device)
    with torch.no_grad():
        logits = logits_of(model(image), 1)
    if logits.shape[1] != len(domain.classes):
        raise ModelError(
            f"expected a model and data of the same classes, got a model of {logits.shape[1]} and"
            f" data of {len(domain.classes)}: {', '.join(domain.classes[:5])}, ..."
        )


def _domains(spec: Spec) -> list[Domain]:
    if not spec.corruptions:
        return [clean(datasets.load(spec.data, spec.split), spec.images)]
    # Only by its name is a published set read from its files; it has no other split.
    data = spec.data if spec.split == "test" else datasets.load(spec.data, spec.split)
    return corrupted(data, spec.corruptions, spec.severities, spec.images)
