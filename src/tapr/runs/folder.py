"""Predicts images by path: each batch is read, adapted on, predicted and written."""

import stat
from collections.abc import Generator, Iterator, Sequence
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
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import DataError, ModelError, TaprError
from tapr.models.output import logits_of
from tapr.objectives import entropy
from tapr.runs.device import sent
from tapr.runs.doctor import check
from tapr.runs.labels import Truth, check_count
from tapr.runs.predictions import Predictions, Row
from tapr.streams.stream import ahead, as_tensor

ENOUGH = 16  # a first batch of so many images, all predicted as one class, is suspicious


class Read(NamedTuple):
    """A batch of files: the images that could be read, and why the others could not."""

    names: list[str]
    pixels: NDArray[np.uint8] | None  # [B, H, W, C]; None when there are none
    errors: dict[str, str]

    @property
    def images(self) -> Tensor:
        """[B, C, H, W] in [0, 1]: made when they are used, since they are four times as large."""
        assert self.pixels is not None
        return as_tensor(self.pixels)


class Done(NamedTuple):
    """A batch whose rows are written."""

    images: int  # rows, of images with and without a prediction
    errors: dict[str, str]


class Judged(NamedTuple):
    """The prediction for one image."""

    predicted: int
    confidence: float
    entropy: float  # in nats


@dataclass(frozen=True, eq=False)
class Reader:
    """Makes batches of the files that a list names."""

    root: Path
    preprocessing: Preprocessing
    batch_size: int
    prefetch: bool = True  # read the next batch ahead; not if the next name may come late

    def batches(self, names: Iterator[str]) -> Iterator[Read]:
        """Batches of `batch_size` files; a batch has fewer images if some cannot be read."""
        read = map(self.read, iter(lambda: list(islice(names, self.batch_size)), []))
        yield from ahead(read, 1) if self.prefetch else read

    def read(self, names: list[str]) -> Read:
        """Read one batch of files."""
        found = dict(zip(names, in_threads(self._pixels, names), strict=True))
        errors = {name: str(found[name]) for name in names if isinstance(found[name], Exception)}
        pixels: list[Any] = [found[name] for name in names if name not in errors]
        return Read(names, np.stack(pixels) if pixels else None, errors)

    def _pixels(self, name: str) -> NDArray[np.uint8] | DataError:
        path = self.root / name
        try:
            # Opening a FIFO waits for a writer, and a device may have no end.
            if not stat.S_ISREG(path.stat().st_mode):
                return DataError("not a regular file")
            return self.preprocessing.read(path)
        except DataError as error:
            return error
        except MemoryError:
            return DataError("the file does not fit into memory")
        except (OSError, ValueError) as error:  # no such file; a NUL in its name
            return DataError(getattr(error, "strerror", None) or str(error))


@dataclass(frozen=True, eq=False)
class Job:
    """An adapter, the model it began with, and what is known about the classes."""

    model: nn.Module
    adapter: Adapter
    names: Sequence[str]  # of the classes; empty when they have none
    truth: Truth
    compare: bool = True  # predict with the unadapted model too
    strict: bool = False  # an image that cannot be read ends the run
    device: str = "cpu"

    def run(self, batches: Iterator[Read], predictions: Predictions) -> Generator[Done, None, None]:
        """Predict the batches and write their rows; an interruption saves the adapter's state."""
        with predictions.kept(self.adapter):
            for batch in batches:
                if self.strict and batch.errors:
                    name, why = next(iter(batch.errors.items()))
                    raise DataError(f"cannot read the image {name}: {why}")
                rows = self.rows(batch)
                predictions.append(rows, self.adapter)
                yield Done(len(rows), {row.path: row.error for row in rows if row.error})

    def rows(self, batch: Read) -> list[Row]:
        """Adapt on a batch and predict it; an image without a prediction has its row's `error`."""
        rows = {name: Row(name, error=why) for name, why in batch.errors.items()}
        readable = [name for name in batch.names if name not in batch.errors]
        if batch.pixels is not None:
            images = sent(batch.images, self.device)
            try:
                before = _judged(self._source(images)) if self.compare else [None] * len(images)
                prediction = self.adapter.predict(images)
                after = _judged(prediction.logits)
            except TaprError as error:  # the adapter is unchanged: the next batch may succeed
                rows |= {name: Row(name, error=str(error)) for name in readable}
            else:
                told = prediction.health
                health = None if told is None else f"{told.verdict} {told.action}".strip()
                for name, new, old in zip(readable, after, before, strict=True):
                    rows[name] = self._row(name, new, old)._replace(health=health)
        return [rows[name] for name in batch.names]

    def preflight(self, batch: Read, method: str, options: dict[str, Any]) -> tuple[list[str], int]:
        """Try a batch before anything is written; return notes and the number of classes."""
        if batch.pixels is None:
            name, why = next(iter(batch.errors.items()))
            raise DataError(
                f"none of the first {len(batch.names)} images can be read: {name}: {why}"
            )
        images, notes = self._classified(sent(batch.images, self.device))
        findings = check(self.model, images, method, **options).findings
        for level, text in findings:
            if level == "problem":
                raise ModelError(f"{text} (found before anything was written)")
        logits = self._source(images)
        check_count(self.names, logits.shape[1])
        self.truth.check(logits.shape[1])
        notes += [text for level, text in findings if level == "note"]
        return notes + self._suspicions(logits), logits.shape[1]

    def _classified(self, images: Tensor) -> tuple[Tensor, list[str]]:
        """The images that the unadapted model has finite logits for, and a note on the others."""
        try:
            finite = self._source(images).isfinite().all(1)
        except Exception:  # the check tries all of them again and says why
            return images, []
        bad = len(images) - int(finite.sum())
        if bad in (0, len(images)):
            return images, []
        return images[finite], [f"{bad} of the first {len(images)} images have no finite logits"]

    def _suspicions(self, logits: Tensor) -> list[str]:
        first, *others = set(logits.argmax(1).tolist())
        if len(logits) < ENOUGH or others:
            return []
        name = self._called(first) or f"class {first}"
        return [
            f"the unadapted model predicts {name} for all {len(logits)} images of the first batch:"
            " if that is wrong, look at the preprocessing (size, mean, deviation)"
        ]

    def _source(self, images: Tensor) -> Tensor:
        with torch.no_grad():
            return logits_of(self.model(images), len(images))

    def _row(self, name: str, new: Judged | None, old: Judged | None) -> Row:
        if new is None:
            return Row(name, error="the model's logits for this image are not finite")
        row = Row(
            path=name,
            predicted=new.predicted,
            name=self._called(new.predicted),
            confidence=new.confidence,
            entropy=new.entropy,
            label=self.truth(name),
        )
        if old is None:
            return row
        return row._replace(
            source_predicted=old.predicted,
            source_name=self._called(old.predicted),
            source_confidence=old.confidence,
            source_entropy=old.entropy,
        )

    def _called(self, number: int) -> str | None:
        return self.names[number] if self.names else None


def _judged(logits: Tensor) -> list[Judged | None]:
    """The predictions that logits [B, K] stand for; None where they are not finite."""
    logits = logits.float()
    confidence, predicted = logits.softmax(1).max(1)
    columns = (predicted.tolist(), confidence.tolist(), entropy(logits).tolist())
    finite = logits.isfinite().all(1).tolist()
    rows = zip(finite, *columns, strict=True)
    return [Judged(*row) if good else None for good, *row in rows]
