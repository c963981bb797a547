"""What Prometheus reads. Streams have no label of their own: there may be too many."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tapr.service.engine import MODES, Engine
from tapr.service.health import VERDICTS

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The numbers of a server."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Engine(engine, self))
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.latency = Histogram(
            "tapr_request_seconds",
            "Time from a request to predict to its answer",
            buckets=BUCKETS,
            registry=self._registry,
        )

    def text(self) -> bytes:
        """The numbers in Prometheus' text format."""
        return generate_latest(self._registry)


class _Engine(Collector):
    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self.engine, self.metrics = engine, metrics

    def collect(self) -> Iterable[Metric]:
        engine = self.engine
        requests = CounterMetricFamily(
            "tapr_requests", "Requests answered", labels=("route", "status")
        )
        for (route, status), count in list(self.metrics.requests.items()):
            requests.add_metric((route, str(status)), count)
        yield requests
        images = CounterMetricFamily("tapr_images", "Images predicted, by mode", labels=("mode",))
        for mode in MODES:
            images.add_metric((mode,), engine.images[mode])
        yield images
        streams = list(engine.streams.all.values())
        health = GaugeMetricFamily("tapr_streams", "Streams by health", labels=("health",))
        found = Counter(stream.health.verdict for stream in streams)
        for verdict in VERDICTS:
            health.add_metric((verdict,), found[verdict])
        yield health
        for name, text, count in (
            ("tapr_batches", "Batches predicted", engine.batches),
            ("tapr_steps", "Steps taken by the method", engine.steps),
            ("tapr_refused_steps", "Steps that the guard refused", engine.refused),
            ("tapr_failed_saves", "States that could not be saved", engine.streams.failures),
        ):
            yield CounterMetricFamily(name, text, value=count)
        for name, text, value in (
            ("tapr_queue_images", "Images that wait", engine.waiting),
            ("tapr_streams_in_memory", "Streams in memory", sum(s.in_memory for s in streams)),
            ("tapr_state_bytes", "State of the streams in memory", state_bytes(engine)),
            ("tapr_unsaved_streams", "Streams to save", sum(not s.saved for s in streams)),
        ):
            yield GaugeMetricFamily(name, text, value=value)


def state_bytes(engine: Engine) -> int:
    """Bytes that the streams in memory have of their own."""
    return sum(stream.own for stream in list(engine.streams.all.values()) if stream.in_memory)
