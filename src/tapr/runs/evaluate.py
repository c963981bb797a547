"""Runs a stream through an adapter and records its batches: the one place that reads labels."""

import time
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from tapr.adapters import Adapter
from tapr.records import TOP, BatchRecord
from tapr.runs import together
from tapr.runs.device import sent
from tapr.streams import Stream
from tapr.streams.stream import Step
from tapr.types import Batch, Health, Prediction

Observe = Callable[[Prediction, BatchRecord], None]


def evaluate(
    adapter: Adapter,
    stream: Stream,
    first: int = 0,
    device: str = "cpu",
    observe: Observe | None = None,
) -> Iterator[BatchRecord]:
    """Predict the stream from batch `first` on; reset the adapter where the stream says so.

    `observe` is called with every prediction and its record, before the record is yielded.
    """
    batches = stream.starting(first)
    for number, step in enumerate(stream.plan[first:], first):
        # Nothing here holds a batch: its images are freed before the next batch's are made.
        prediction, record = _predicted(adapter, number, step, next(batches), device)
        if observe is not None:
            observe(prediction, record)
        yield record


def _predicted(
    adapter: Adapter, number: int, step: Step, batch: Batch, device: str
) -> tuple[Prediction, BatchRecord]:
    images = sent(batch.images, device)
    if batch.reset:
        adapter.reset()
    started = time.perf_counter()
    prediction = together.predicted(adapter, images)
    predicted = prediction.logits.argmax(1).tolist()
    seconds = time.perf_counter() - started
    domains = step.segment.domains
    return prediction, BatchRecord(
        number=number,
        domain=batch.domain,
        corruption=domains[0].corruption if len(domains) == 1 else None,
        severity=domains[0].severity if len(domains) == 1 else None,
        images=step.numbers.tolist(),
        labels=None if batch.labels is None else batch.labels.tolist(),
        predicted=predicted,
        **_confidence(prediction.logits, batch.labels),
        loss=prediction.loss,
        terms=dict(prediction.terms),
        steps=prediction.steps,
        kept=prediction.kept,
        refused=prediction.refused,
        forward=prediction.forward,
        backward=prediction.backward,
        seconds=round(seconds, 6),
        shadow=prediction.shadow,
        health=_told(prediction.health),
    )


def _confidence(logits: Tensor, labels: Tensor | None) -> dict[str, Any]:
    """The likeliest classes of each image, and how likely its true class is."""
    likelihoods = logits.detach().float().cpu().log_softmax(1)  # [B, K]
    values, classes = likelihoods.topk(min(TOP, likelihoods.shape[1]))
    found: dict[str, Any] = {
        "top": classes.tolist(),
        "probabilities": [[_short(p) for p in row] for row in values.exp().tolist()],
        "squares": [_short(value) for value in likelihoods.exp().square().sum(1).tolist()],
    }
    if labels is not None:
        true = likelihoods.gather(1, labels[:, None])[:, 0]
        found["log_likelihoods"] = [_short(value) for value in true.tolist()]
    return found


def _told(health: Health | None) -> dict[str, Any] | None:
    """The health as a JSON object."""
    if health is None:
        return None
    table = {n: _short(v) if isinstance(v, float) else v for n, v in health._asdict().items()}
    return {**table, "shift": [_short(nats) for nats in health.shift]}


def _short(value: float) -> float:
    """The number rounded to six significant digits, to keep files small."""
    return float(f"{value:.6g}")
