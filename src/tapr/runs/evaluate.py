"""A stream through an adapter, as records of its batches: the one place that reads labels."""

import time
from collections.abc import Iterator
from typing import Any

import torch

from tapr.adapters import Adapter
from tapr.records import BatchRecord
from tapr.streams import Stream


class Counter:
    """Counts the images that go through a model, forward and with a gradient behind them."""

    def __init__(self, adapter: Adapter) -> None:
        self.forward = self.backward = 0
        adapter.model.register_forward_hook(self._count)

    def _count(self, module: object, inputs: tuple[Any, ...], output: object) -> None:
        self.forward += len(inputs[0])
        self.backward += len(inputs[0]) * torch.is_grad_enabled()

    def take(self) -> tuple[int, int]:
        """The counts since the last call."""
        counts = self.forward, self.backward
        self.forward = self.backward = 0
        return counts


def evaluate(
    adapter: Adapter, stream: Stream, first: int = 0, device: str = "cpu"
) -> Iterator[BatchRecord]:
    """Predict the stream from batch `first` on; the adapter is reset where the stream says so."""
    counter = Counter(adapter)
    steps = stream.plan[first:]
    for number, (step, batch) in enumerate(zip(steps, stream.starting(first), strict=True), first):
        images = batch.images.to(device)
        if batch.reset:
            adapter.reset()
        started = time.perf_counter()
        prediction = adapter.predict(images)
        predicted = prediction.logits.argmax(1).tolist()
        seconds = time.perf_counter() - started
        forward, backward = counter.take()
        yield BatchRecord(
            number=number,
            domain=batch.domain,
            images=step.numbers.tolist(),
            labels=None if batch.labels is None else batch.labels.tolist(),
            predicted=predicted,
            loss=prediction.loss,
            terms=dict(prediction.terms),
            steps=prediction.steps,
            kept=prediction.kept,
            refused=prediction.refused,
            forward=forward,
            backward=backward,
            seconds=round(seconds, 6),
        )
