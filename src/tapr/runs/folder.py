"""Images by path through an adapter: read, adapted on, predicted, written down, batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tapr.adapters import Adapter
from tapr.datasets.lazy import in_threads
from tapr.errors import DataError, ModelError, TaprError
from tapr.models.output import logits_of
from tapr.objectives import entropy
from tapr.runs.doctor import check
from tapr.runs.labels import check_count
from tapr.runs.predictions import Predictions, Row
from tapr.runs.preprocess import Preprocessing
from tapr.streams.stream import ahead, as_tensor

ENOUGH = 16  # images of the first batch, from which one class for all of them is suspicious


class Read(NamedTuple):
    """A batch of files: the images that could be read, and why the others could not."""

    names: list[str]
    images: Tensor | None  # [B, C, H, W] in [0, 1]; None when there are none
    errors: dict[str, str]


class Done(NamedTuple):
    """What one batch came to."""

    images: int
    errors: dict[str, str]


@dataclass(frozen=True, eq=False)
class Reader:
    """Makes batches of the files that a list names."""

    root: Path
    preprocessing: Preprocessing
    batch_size: int
    prefetch: bool = True  # read the next batch meanwhile; not where a name may be long in coming

    def batches(self, names: Iterator[str]) -> Iterator[Read]:
        """Batches of so many files; where some cannot be read, a batch has fewer images."""
        read = map(self.read, iter(lambda: list(islice(names, self.batch_size)), []))
        return ahead(read, 1) if self.prefetch else read

    def read(self, names: list[str]) -> Read:
        """Read one batch."""
        found = dict(zip(names, in_threads(self._pixels, names), strict=True))
        errors = {name: str(found[name]) for name in names if isinstance(found[name], Exception)}
        pixels: list[Any] = [found[name] for name in names if name not in errors]
        images = as_tensor(np.stack(pixels)) if pixels else None
        return Read(names, images, errors)

    def _pixels(self, name: str) -> NDArray[np.uint8] | DataError:
        try:
            return self.preprocessing.read(self.root / name)
        except DataError as error:
            return error


@dataclass(frozen=True, eq=False)
class Job:
    """An adapter, the model it began with, and what is known about the classes."""

    model: nn.Module
    adapter: Adapter
    names: Sequence[str]  # of the classes; empty when they have none
    truth: Callable[[str], int | None]
    compare: bool = True  # predict with the unadapted model too
    strict: bool = False  # an image that cannot be read ends the run
    device: str = "cpu"

    def run(self, batches: Iterator[Read], predictions: Predictions) -> Iterator[Done]:
        """Predict the batches and write them down, one after the other."""
        for batch in batches:
            if self.strict and batch.errors:
                name, why = next(iter(batch.errors.items()))
                raise DataError(f"cannot read the image {name}: {why}")
            rows = self.rows(batch)
            predictions.append(rows, self.adapter)
            yield Done(len(rows), {row.path: row.error for row in rows if row.error})

    def rows(self, batch: Read) -> list[Row]:
        """Adapt on a batch and predict it; what fails is said in the rows."""
        rows = {name: Row(name, error=why) for name, why in batch.errors.items()}
        readable = [name for name in batch.names if name not in batch.errors]
        if batch.images is not None:
            images = batch.images.to(self.device)
            try:
                before = _judged(self._source(images)) if self.compare else None
                after = _judged(self.adapter(images))
            except TaprError as error:  # the adapter is as it was: the next batch may do
                rows |= {name: Row(name, error=str(error)) for name in readable}
            else:
                empty = [(None, None, None)] * len(readable)
                for name, new, old in zip(readable, after, before or empty, strict=True):
                    rows[name] = self._row(name, new, old)
        return [rows[name] for name in batch.names]

    def preflight(self, batch: Read, method: str, options: dict[str, Any]) -> tuple[list[str], int]:
        """Try a batch before anything is written: what is worth a note, and the classes."""
        if batch.images is None:
            name, why = next(iter(batch.errors.items()))
            raise DataError(
                f"none of the first {len(batch.names)} images can be read: {name}: {why}"
            )
        images = batch.images.to(self.device)
        findings = check(self.model, images, method, **options).findings
        for level, text in findings:
            if level == "problem":
                raise ModelError(f"{text} (found before anything was written)")
        logits = self._source(images)
        check_count(self.names, logits.shape[1])
        notes = [text for level, text in findings if level == "note"]
        return notes + self._suspicions(logits), logits.shape[1]

    def _suspicions(self, logits: Tensor) -> list[str]:
        first, *others = set(logits.argmax(1).tolist())
        if len(logits) < ENOUGH or others:
            return []
        name = self._called(first) or f"class {first}"
        return [
            f"the unadapted model calls all {len(logits)} images of the first batch {name}: if they"
            " are not, look at the preprocessing (size, mean, deviation)"
        ]

    def _source(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return logits_of(self.model(images), len(images))

    def _row(self, name: str, new: Sequence[Any], old: Sequence[Any]) -> Row:
        return Row(
            path=name,
            predicted=new[0],
            name=self._called(new[0]),
            confidence=new[1],
            entropy=new[2],
            source_predicted=old[0],
            source_name=self._called(old[0]),
            source_confidence=old[1],
            source_entropy=old[2],
            label=self.truth(name),
        )

    def _called(self, number: int | None) -> str | None:
        return self.names[number] if self.names and number is not None else None


def _judged(logits: Tensor) -> list[tuple[int, float, float]]:
    """Class, confidence and entropy of each image."""
    confidence, predicted = logits.float().softmax(1).max(1)
    return list(zip(predicted.tolist(), confidence.tolist(), entropy(logits).tolist(), strict=True))
