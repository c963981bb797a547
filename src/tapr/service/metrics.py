"""The metrics for Prometheus. Streams are no label of them, since there may be too many."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tapr.service.health import VERDICTS
from tapr.service.report import MODES, Report

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The metrics of a server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._told = _Told(self)
        self._registry.register(self._told)
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.latency = Histogram(
            "tapr_request_seconds",
            "Time from a request to predict to its answer",
            buckets=BUCKETS,
            registry=self._registry,
        )

    def text(self, report: Report) -> bytes:
        """The metrics in Prometheus' text format."""
        self._told.report = report
        return generate_latest(self._registry)


class _Told(Collector):
    report = Report()

    def __init__(self, metrics: Metrics) -> None:
        self.metrics = metrics

    def collect(self) -> Iterable[Metric]:
        report = self.report
        requests = CounterMetricFamily(
            "tapr_requests", "Requests answered", labels=("route", "status")
        )
        for (route, status), count in list(self.metrics.requests.items()):
            requests.add_metric((route, str(status)), count)
        yield requests
        images = CounterMetricFamily("tapr_images", "Images predicted, by mode", labels=("mode",))
        for mode in MODES:
            images.add_metric((mode,), report.images[mode])
        yield images
        health = GaugeMetricFamily("tapr_streams", "Streams by health", labels=("health",))
        found = report.verdicts()
        for verdict in VERDICTS:
            health.add_metric((verdict,), found[verdict])
        yield health
        for name, text, count in (
            ("tapr_batches", "Batches predicted", report.batches),
            ("tapr_steps", "Steps taken by the method", report.steps),
            ("tapr_refused_steps", "Steps that the guard refused", report.refused),
            ("tapr_failed_saves", "States that could not be saved", report.failures),
        ):
            yield CounterMetricFamily(name, text, value=count)
        unsaved = sum(not row["saved"] for row in report.streams)
        for name, text, value in (
            ("tapr_queue_images", "Images that wait", report.waiting),
            ("tapr_streams_in_memory", "Streams in memory", report.in_memory),
            ("tapr_state_bytes", "State of the streams in memory", report.state_bytes),
            ("tapr_unsaved_streams", "Streams to save", unsaved),
        ):
            yield GaugeMetricFamily(name, text, value=value)
