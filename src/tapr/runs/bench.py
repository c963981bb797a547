"""From a spec to cells to records; a cell is one method on one stream with one seed."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from tapr import datasets, methods, names, sync
from tapr.adapters import Adapter, Passes
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import InputError
from tapr.models import head
from tapr.models.output import logits_of
from tapr.models.state import fingerprint
from tapr.records import BatchRecord
from tapr.runs import labels, preprocess, together
from tapr.runs import spec as specs
from tapr.runs.device import AUTO, usable
from tapr.runs.evaluate import Observe, evaluate
from tapr.runs.spec import Spec
from tapr.runs.store import Journal
from tapr.streams import Domain, Stream, blank, clean, corrupted, orders, protocols
from tapr.streams.domains import Numbers
from tapr.streams.stream import as_tensor, usual_order

BLANK = 4  # batches of blank images before a stream
_log = logging.getLogger("tapr.runs")

# The parts of a run's identity that are for readers and influence no number.
_WORDS = {"title", "options", "statistics", "adapts"}


@dataclass(frozen=True, eq=False)
class Cell:
    """One method on one stream with one seed: one run, one file."""

    label: str
    seed: int
    domains: tuple[Domain, ...]
    identity: dict[str, Any]  # the whole effective spec, which identifies the run
    passes: Passes  # of an image through the model
    images: int  # in its stream; an image counts as often as it comes
    variant: str = ""  # what a sweep changed in it, for readers

    @property
    def title(self) -> str:
        """The method, and what a sweep changed in it."""
        return f"{self.label} {self.variant}".strip()

    @property
    def work(self) -> float:
        """The cell's cost in forward passes of an image; a backward counts as two."""
        return (self.passes.forward + 2 * self.passes.backward) * self.images

    @property
    def column(self) -> str:
        """The domain's name, or the stream's."""
        if len(self.domains) == 1:
            return self.domains[0].name
        return str(self.identity["setting"]["protocol"])

    @property
    def file(self) -> str:
        """The name of the cell's file: readable, and different for every spec."""
        decisive = {key: value for key, value in self.identity.items() if key not in _WORDS}
        text = json.dumps(decisive, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{self.column}.{names.slug(self.label)}.seed{self.seed}.{digest}.jsonl"


class Traits(NamedTuple):
    """Facts about a method that a record holds besides its options."""

    title: str  # the method's name for readers
    statistics: str  # which batch-norm statistics it predicts with
    adapts: bool  # False for the unadapted baseline
    views: str
    passes: Passes


def traits(adapter: Adapter) -> Traits:
    """The traits of an adapter's method."""
    return Traits(
        title=adapter.title or str(adapter.recipe["method"]),
        statistics=adapter.policy,
        adapts=adapter.adapts,
        views=repr(getattr(adapter, "views", None)),
        passes=adapter.passes,
    )


class Only(NamedTuple):
    """A model restricted to some classes, and their names."""

    model: nn.Module
    names: list[str]


_KNOWN: dict[str, Traits] = {}  # model and method's table -> its traits


class Bench:
    """A spec with its data and model loaded; `cells` are in the order in which they run."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec, self.folder = spec, folder
        self.order = _order(spec)
        found = usable(spec.device)
        self.device = found.type if spec.device == AUTO else spec.device
        given = preprocess.settings(spec)
        prepared = preprocess.prepared(spec.model, spec.architecture, given, self.device)
        for note in prepared.notes:
            _log.warning(note)
        self.model, self.fit = prepared.model, None
        if spec.size or datasets.is_sized(spec.data):
            self.fit = prepared.preprocessing
        domains, first = _domains(spec, self.fit), _clean(spec, self.fit)
        names: Sequence[str] = labels.class_names(None, prepared.config)
        outputs = _outputs(self.model, domains[0], self.device)
        if datasets.is_only(spec.data):
            self.model, names = _only(self.model, domains[0], names, outputs)
            outputs = len(names)
        domains = [labels.placed(domain, names, outputs) for domain in domains]
        first = None if first is None else labels.placed(first, names, outputs)
        self.traits = {label: self._traits(table) for label, table in spec.methods.items()}
        self.protocol = protocols.made(
            spec.protocol, rounds=spec.rounds, clean=first, blank=_blank(spec, domains[0])
        )
        streams = [(domain,) for domain in domains] if spec.protocol == "each" else [tuple(domains)]
        self.cells = [
            Cell(
                label,
                seed,
                stream,
                self._identity(label, seed, stream),
                self.traits[label].passes,
                self._images(stream),
            )
            for stream in streams
            for label in spec.methods
            for seed in spec.seeds
        ]

    def journal(self, cell: Cell) -> Journal:
        """The journal of the cell's file."""
        return Journal(self.folder / cell.file)

    def adapter(self, cell: Cell) -> Adapter:
        """A fresh adapter of the cell's method."""
        return methods.adapt(self.model, **self.spec.methods[cell.label], seed=cell.seed)

    def run(
        self, cell: Cell, observe: Observe | None = None, journal: Journal | None = None
    ) -> Generator[BatchRecord, None, None]:
        """Run a cell from where its file ends; a finished one yields nothing.

        `journal` is the cell's, when it has been opened already.
        """
        journal = journal or self.journal(cell)
        if journal.finished and sync.group() is None:
            journal.tidy()
            return
        adapter = self.adapter(cell)
        done = together.resumed(journal, adapter, self.device)
        if done is None:
            return
        stream = Stream(
            cell.domains,
            self.spec.batch_size,
            protocol=self.protocol,
            order=self.order,
            seed=cell.seed,
        )
        batches = evaluate(adapter, stream, done, self.device, observe)
        first = together.is_first()
        yield from journal.write(cell.identity, adapter, batches) if first else batches

    def _traits(self, table: Mapping[str, Any]) -> Traits:
        """The traits of a method, found once for all specs of a sweep: some are slow to make."""
        named = [self.spec.model, self.spec.architecture, self._model_hash, table]
        key = json.dumps(named, sort_keys=True, default=repr)
        if key not in _KNOWN:
            _KNOWN[key] = traits(methods.adapt(self.model, **table))
        return _KNOWN[key]

    def _images(self, stream: tuple[Domain, ...]) -> int:
        segments = self.protocol(stream)
        return self.spec.burst * sum(len(d) for segment in segments for d in segment.domains)

    @cached_property
    def _model_hash(self) -> str:
        return fingerprint(self.model.state_dict())

    def _identity(self, label: str, seed: int, domains: tuple[Domain, ...]) -> dict[str, Any]:
        spec, table, traits = self.spec, self.spec.methods[label], self.traits[label]
        uncommon = [f for f in Spec.model_fields if specs.is_single(f) and not specs.role(f).common]
        return {
            "spec": spec.name,
            "label": label,
            "method": table["method"],
            "title": traits.title,
            "options": _options(table),
            "statistics": traits.statistics,
            "adapts": traits.adapts,
            "recipe": methods.recipe(**table, seed=seed),
            "views": traits.views,
            "seed": seed,
            **{field: getattr(spec, field) for field in uncommon},
            "device": self.device,
            "setting": self._setting(domains),
            "origin": asdict(domains[0].origin),
            "domains": [
                {"name": d.name, "corruption": d.corruption, "severity": d.severity}
                for d in domains
            ],
            "classes": list(domains[0].classes),
        }

    def _setting(self, domains: tuple[Domain, ...]) -> dict[str, Any]:
        """The facts that must be equal for numbers to be in one table."""
        origin = domains[0].origin
        severities = {domain.severity for domain in domains if domain.severity is not None}
        setting = {
            **specs.common(self.spec),
            "images": len(domains[0]),
            "severities": sorted(severities),
            # The seed of the corruptions is the run's own: numbers of both may be in one table.
            "origin": {"dataset": origin.dataset, "made": origin.made},
            "model_hash": self._model_hash,
        }
        if self.fit is not None:
            fields = self.fit._asdict()
            setting["fit"] = {key: fields[key] for key in ("crop", "mode", "interpolation")}
            setting["fit"]["size"] = list(self.fit.size)
        if len(domains) > 1:
            setting["domains"] = [domain.name for domain in domains]
        return setting


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    """The options in a method's table that are not the defaults of its preset."""
    preset = table.get("preset", "paper")
    effective, defaults = (
        methods.recipe(**given) for given in (table, {"method": table["method"], "preset": preset})
    )
    changed = {k: v for k, v in effective.items() if k not in defaults or defaults[k] != v}
    return changed if preset == "paper" else {"preset": preset, **changed}


def _outputs(model: nn.Module, domain: Domain, device: str) -> int:
    """The number of the model's classes."""
    image = as_tensor(np.asarray(domain.read(domain.numbers[:1]))).to(device)
    with torch.no_grad():
        return logits_of(model(image), 1).shape[1]


def _only(model: nn.Module, domain: Domain, names: Sequence[str], outputs: int) -> Only:
    """The model restricted to the outputs of the domain's classes, and their names."""
    found = labels.places(domain.classes, names, outputs)
    kept = sorted({place for place in found if place is not None})
    called = list(names) or list(labels.numbered(domain.classes, found, outputs))
    return Only(head.restricted(model, kept), [called[place] for place in kept])


def _order(spec: Spec) -> orders.Order:
    def given(field: str) -> Any:
        value = getattr(spec, field)
        return None if value == Spec.model_fields[field].default else value

    name = spec.order or usual_order(spec.protocol)
    return orders.made(name, delta=given("delta"), shift_at=given("shift_at"), burst=spec.burst)


def _clean(spec: Spec, fit: Preprocessing | None) -> Domain | None:
    """The clean images before and after the stream, if the spec asks for any."""
    if not spec.clean:
        return None
    if not spec.corruptions:
        raise InputError("clean images before and after need corruptions between them, got none")
    entry = datasets.PUBLISHED.get(spec.data)
    name, split = (entry.clean, "test") if entry else (spec.data, spec.split)
    return clean(datasets.load(name, split, size=fit), spec.clean)


def _blank(spec: Spec, like: Domain) -> Domain | None:
    """The blank images before the stream, if the spec asks for any."""
    return None if spec.blank is None else blank(spec.blank, like, BLANK * spec.batch_size)


def _domains(spec: Spec, fit: Preprocessing | None) -> list[Domain]:
    subset = _subset(spec, fit)
    if not spec.corruptions:
        return [clean(datasets.load(spec.data, spec.split, size=fit), subset)]
    # A published set is read from its files only under its own name; it has no other split.
    data = spec.data if spec.split == "test" else datasets.load(spec.data, spec.split, size=fit)
    return corrupted(data, spec.corruptions, spec.severities, subset, size=fit)


def _subset(spec: Spec, fit: Preprocessing | None) -> int | Numbers | None:
    """The images to predict: all, the first few, or those of one class."""
    if spec.only_class is None:
        return spec.images
    entry = datasets.PUBLISHED.get(spec.data)
    name, split = (entry.clean, "test") if entry else (spec.data, spec.split)
    found = datasets.load(name, split, size=fit)
    classes = np.empty(0, np.int64) if found.labels is None else found.labels
    members = np.flatnonzero(classes == spec.only_class)
    if len(members) < (spec.images or 1):
        raise InputError(
            f"expected {spec.images or 'some'} images of class {spec.only_class} in {found.name},"
            f" got {len(members)}"
        )
    return members[: spec.images]
