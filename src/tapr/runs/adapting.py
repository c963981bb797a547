"""`tapr adapt`: loads what a request asks for, predicts the images and sums up."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from tapr import methods
from tapr.datasets import Watcher
from tapr.errors import DataError, InputError, StateError
from tapr.models.state import fingerprint
from tapr.runs import labels, listing, preprocess
from tapr.runs.device import usable
from tapr.runs.folder import ENOUGH, Job, Read, Reader
from tapr.runs.predictions import Predictions
from tapr.runs.store import save_state
from tapr.runs.summary import Summary, read_summary, summarise

SAID = 5  # how many images without a prediction are named; the CSV names them all


@dataclass(frozen=True)
class Request:
    """The images to predict, the model and method, and the files to write."""

    source: str
    model: str
    out: Path
    architecture: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # of preprocessing, in timm's words
    labels: Path | None = None
    truth: Path | None = None
    method: str = "steady"
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    batch_size: int = 64
    shuffle: bool = False
    device: str = "auto"
    compare: bool = True
    strict: bool = False
    resume: bool = True
    save_state: Path | None = None
    load_state: Path | None = None


class Adapting:
    """A request with its model, adapter and list of images loaded."""

    def __init__(self, request: Request) -> None:
        self.request = request
        if request.save_state is not None and request.save_state.is_dir():
            raise InputError(f"expected a file for --save-state, got {request.save_state}")
        self.predictions = Predictions(request.out)
        self.device = str(usable(request.device))
        self.prepared = preprocess.prepared(
            request.model, request.architecture, request.settings, self.device
        )
        self.preprocessing, model = self.prepared.fit, self.prepared.model
        adapter = methods.adapt(model, request.method, seed=request.seed, **request.options)
        if request.load_state is not None:
            adapter.load(request.load_state)
        names = labels.class_names(request.labels, self.prepared.config)
        truth = labels.Truth(names, request.truth)
        self.job = Job(model, adapter, names, truth, request.compare, request.strict, self.device)
        self.listing = listing.find(request.source, shuffle=request.shuffle, seed=request.seed)
        self.reader = Reader(
            self.listing.root,
            self.preprocessing,
            request.batch_size,
            prefetch=self.listing.total is not None,
        )

    def run(self, watch: Watcher) -> Summary:
        """Predict the images that have no row yet, and return the summary.

        The pre-flight check of a new run comes before any file is written or replaced.
        """
        names = iter(self.listing.names)
        before = self.predictions.record()
        classes: int | None = None
        if before is None or not self.request.resume:
            self.predictions.check_free()
            first = self._first(names)
            classes = self._preflight(first, watch)
            names = chain(first.names, names)
        with self.predictions.locked():
            record = self.predictions.record()
            if (record is None) != (before is None):
                raise DataError(
                    f"another tapr has written or removed {self.predictions.path} in the meantime:"
                    " give the same command again"
                )
            if classes is not None:
                source = self.request.source
                self.predictions.begin(self._identity(), source=source, classes=classes)
            elif record is not None:
                self.predictions.check_same(self._identity())
                if record["summary"] is not None:
                    return self._finished(names, record)
                self.predictions.resume(self.job.adapter)
            self._go(names, watch)
            return self._end()

    def _first(self, names: Iterator[str]) -> Read:
        first = list(islice(names, self.request.batch_size))
        if not first:
            raise DataError("expected the paths of images on standard input, got none")
        return self.reader.read(first)

    def _preflight(self, first: Read, watch: Watcher) -> int:
        """Try the first batch, note what is suspicious, and return the number of classes."""
        options = {"seed": self.request.seed, **self.request.options}
        notes, classes = self.job.preflight(first, self.request.method, options)
        for note in (*notes, *self._notes(first)):
            watch.note(f"note: {note}")
        watch.note(f"images: {self.preprocessing}")
        return classes

    def _notes(self, first: Read) -> Iterator[str]:
        yield from self.prepared.notes
        known = {self.job.truth(name) for name in first.names}
        if len(first.names) >= ENOUGH and len(known) == 1 and None not in known:
            yield (
                "the first batch is all of one class: adaptation assumes that batches are mixed;"
                " --shuffle mixes them"
            )

    def _go(self, names: Iterator[str], watch: Watcher) -> None:
        done = self._skip(names)
        if done:
            watch.note(f"resuming after {done:,} images")
        said = 0
        with closing(self.job.run(self.reader.batches(names), self.predictions)) as batches:
            for batch in batches:
                for name, why in batch.errors.items():
                    said += 1
                    if said <= SAID:
                        watch.note(f"not predicted: {name}: {why}")
                done += batch.images
                watch.progress(done, self.listing.total)

    def _skip(self, names: Iterator[str]) -> int:
        """Skip the images that have a row; refuse a list that the rows were not made from."""
        done = 0
        for done, row in enumerate(self.predictions.rows(), 1):
            name = next(names, None)
            if name != row.path:
                raise DataError(
                    f"{self.predictions.path} was started with another list: image {done} was"
                    f" {row.path}, now {name or 'there is none'}; give the same list to resume,"
                    " another --out, or --no-resume to start again"
                )
        return done

    def _finished(self, names: Iterator[str], record: Mapping[str, Any]) -> Summary:
        self.predictions.tidy()
        done = self._skip(names)
        if next(names, None) is not None:
            raise DataError(
                f"{self.predictions.path} is finished with {done:,} images, and the list has more:"
                " choose another --out; --save-state and --load-state carry the adapted model over"
            )
        if self.request.save_state is not None and not self.request.save_state.exists():
            raise StateError(
                f"{self.predictions.path} is finished and its adapted state was not kept:"
                " --no-resume runs it again"
            )
        return read_summary(record["summary"], self.predictions.folder)

    def _end(self) -> Summary:
        classes = (self.predictions.record() or {})["classes"]
        names: Sequence[str] = self.job.names or [f"class {number}" for number in range(classes)]
        summary = summarise(self.predictions.rows(), names, self.job.adapter.refused)
        if self.request.save_state is not None:
            save_state(self.job.adapter, self.request.save_state)
        self.predictions.finish(asdict(summary))
        return summary

    def _identity(self) -> dict[str, Any]:
        """Everything that the rows depend on, except the list, which is compared with them."""
        request = self.request
        return {
            "model": request.model,
            "model_hash": fingerprint(self.job.model.state_dict()),
            **self.job.adapter.recipe,
            "batch_size": request.batch_size,
            "preprocessing": str(self.preprocessing),
            "device": self.device,
            "compare": request.compare,
            "labels": list(self.job.names),
            "truth": _digest(request.truth),
            "load_state": _digest(request.load_state),
        }


def _digest(path: Path | None) -> str | None:
    try:
        return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
