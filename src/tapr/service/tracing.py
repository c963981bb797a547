"""Spans of OpenTelemetry: how long a request waited, what its batch did, when states are saved.

FastAPI makes the span of a request; the spans of its waiting and of its batch lie below it. A batch
answers several requests: it lies below the first and has links to the others. Without a tracer
provider none of this is recorded.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib.util import find_spec

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span

TRACER = trace.get_tracer("tapr.service")
STREAM: ContextVar[str | None] = ContextVar("stream", default=None)  # which is worked on


def exporting() -> bool:
    """Whether the package that sends spans to `OTEL_EXPORTER_OTLP_ENDPOINT` is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


@contextmanager
def stream(name: str) -> Iterator[None]:
    """Within this context, log messages name the stream."""
    before = STREAM.set(name)
    try:
        yield
    finally:
        STREAM.reset(before)


def span(name: str, **attributes: str | int) -> AbstractContextManager[Span]:
    """A span around the code of a `with` block."""
    return TRACER.start_as_current_span(name, attributes=_named(attributes))


def batch(
    requests: Sequence[Context], waited: Sequence[float], **attributes: str | int
) -> AbstractContextManager[Span]:
    """A span for the batch that answers these requests, and one for the time each has waited."""
    now = time.time_ns()
    for context, seconds in zip(requests, waited, strict=True):
        TRACER.start_span("wait", context, start_time=now - int(seconds * 1e9)).end(now)
    links = [Link(trace.get_current_span(each).get_span_context()) for each in requests[1:]]
    return TRACER.start_as_current_span(
        "batch", requests[0], links=links, attributes=_named(attributes)
    )


def _named(attributes: dict[str, str | int]) -> dict[str, str | int]:
    return {f"tapr.{name}": value for name, value in attributes.items()}
