"""Spans of OpenTelemetry, and logged lines that name their stream."""

import json
import logging
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tapr.client import Client
from tapr.service import tracing
from tapr.service.engine import Engine
from tapr.service.front import Lines

Making = Callable[..., Engine]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    monkeypatch.setattr(tracing, "TRACER", provider.get_tracer("test"))
    yield exporter
    provider.shutdown()


def named(found: tuple[ReadableSpan, ...], name: str) -> list[ReadableSpan]:
    return [span for span in found if span.name == name]


def seconds(span: ReadableSpan) -> float:
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_request_has_its_waiting_its_batch_and_its_prediction_below_it(
    listen: Callable[..., str], spans: InMemorySpanExporter
) -> None:
    url = listen(max_wait=0.05, journal=True)
    with Client(url) as client:
        client.predict("a", np.zeros((2, 10, 9, 3), np.uint8))
        client.snapshot("a")
    found = spans.get_finished_spans()
    (request,) = named(found, "POST /v1/streams/{stream}/predict")
    (wait,) = named(found, "wait")
    (batch,) = named(found, "batch")
    (predict,) = named(found, "predict")
    (log,) = named(found, "log")
    (save,) = named(found, "save")
    for below, above in ((wait, request), (batch, request), (predict, batch), (log, batch)):
        assert below.parent is not None
        assert below.parent.span_id == above.context.span_id
    assert seconds(wait) >= 0.045
    assert batch.attributes == {"tapr.stream": "a", "tapr.images": 2}
    assert predict.attributes == {"tapr.mode": "adapted"}
    assert save.attributes == {"tapr.stream": "a"}


def test_a_batch_of_several_requests_has_links_to_them(
    make_engine: Making, spans: InMemorySpanExporter
) -> None:
    engine = make_engine(start=False, max_wait=0.05)
    waiting = []
    for number in range(3):
        with tracing.span(f"request-{number}"):
            waiting.append(engine.submit("a", torch.rand(1, 3, 10, 9), str(number)))
    engine.start()
    assert [each.result(30).together for each in waiting] == [3, 3, 3]
    found = spans.get_finished_spans()
    (batch,) = named(found, "batch")
    first, second, third = (named(found, f"request-{number}")[0].context for number in range(3))
    assert batch.parent is not None
    assert batch.parent.span_id == first.span_id
    assert [link.context.span_id for link in batch.links] == [second.span_id, third.span_id]
    assert len(named(found, "wait")) == 3


def test_what_the_guard_logs_names_the_stream(
    make_engine: Making, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[dict[str, str]] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(json.loads(Lines().format(record)))  # type: ignore[method-assign]
    logger = logging.getLogger("tapr")
    logger.addHandler(handler)
    try:
        engine = make_engine()
        engine.submit("dark", torch.zeros(4, 3, 10, 9), "r").result(30)
    finally:
        logger.removeHandler(handler)
    (said,) = [line for line in lines if "show nothing" in line["message"]]
    assert said["stream"] == "dark"
