"""The service as a whole: a model, its engine, and uvicorn in front of it."""

import asyncio
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from torch import nn
from uvicorn.protocols.http.h11_impl import H11Protocol

import tapr
from tapr.datasets.preprocessing import Preprocessing
from tapr.errors import InputError
from tapr.runs.labels import check_count
from tapr.service.cluster import Cluster
from tapr.service.engine import Engine
from tapr.service.metrics import Metrics
from tapr.service.plan import Plan
from tapr.service.report import Report
from tapr.service.security import check_host
from tapr.service.settings import Settings

CONNECTIONS = 256
LATENCIES = 500  # how many of the last requests' latencies the dashboard uses
SWITCH = 0.0005  # seconds after which a thread must let another one run
LATE = b'{"error": "the headers did not arrive in time"}'
GRACE = 20  # seconds that requests under way have when the server stops


class Service:
    """A model that answers over HTTP; `engine` does the work, in this process or elsewhere."""

    def __init__(
        self,
        model: nn.Module,
        preprocessing: Preprocessing,
        settings: Settings,
        *,
        method: str = "steady",
        options: Mapping[str, Any] | None = None,
        names: tuple[str, ...] = (),
        device: str = "cpu",
        title: str = "",
        engine: Callable[[Plan], Engine | Cluster] = Plan.engine,
    ) -> None:
        self.settings, self.preprocessing, self.names = settings, preprocessing, names
        self.title, self.method, self.version = title, method, tapr.__version__
        plan = Plan(model, preprocessing.size, settings, method, dict(options or {}), device)
        self.engine = engine(plan)
        try:
            check_count(names, self.engine.facts.classes)
        except InputError:
            self.engine.close()
            raise
        self.resumed = len(self.engine.known)
        self.metrics = Metrics()
        self.stopping = False
        self._latencies: deque[tuple[float, float]] = deque(maxlen=LATENCIES)
        self._before = (time.monotonic(), 0, 0.0)

    def start(self) -> None:
        """Begin to answer requests."""
        self.engine.start()

    def close(self) -> None:
        """Save every stream."""
        self.stopping = True
        self.engine.close()

    def latency(self, seconds: float) -> None:
        """Record how long a request took."""
        self.metrics.latency.observe(seconds)
        self._latencies.append((time.monotonic(), seconds))

    def rates(self, report: Report) -> dict[str, float | None]:
        """Images per second over the last second, and the latency of the last requests."""
        when, images, rate = self._before
        now, total = time.monotonic(), sum(report.images.values())
        if now - when >= 1:
            rate = (total - images) / (now - when)
            self._before = (now, total, rate)
        recent = sorted(took for came, took in list(self._latencies) if now - came < 60)
        p50, p95 = (recent[int(len(recent) * share)] if recent else None for share in (0.5, 0.95))
        return {"images_per_second": rate, "p50": p50, "p95": p95}

    def about(self, report: Report) -> dict[str, Any]:
        """The model and method that are served, and the limits."""
        limits = self.settings
        return {
            "tapr": self.version,
            "model": self.title,
            "method": self.method,
            "recipe": self.engine.facts.recipe,
            "classes": list(self.names),
            "input": str(self.preprocessing),
            "shape": list(self.preprocessing.size),
            "streams": len(report.streams),
            "state_bytes": report.state_bytes,
            "limits": {
                name: getattr(limits, name)
                for name in (
                    *("max_batch", "max_wait", "max_queue", "budget", "max_body", "max_images"),
                    *("max_pixels", "max_streams", "in_memory", "rate", "timeout"),
                )
            },
        }


class Impatient(H11Protocol):
    """HTTP/1.1 that refuses a request whose headers do not arrive in time."""

    patience = 10.0  # seconds
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit for headers."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(self.patience, self._refuse)

    def data_received(self, data: bytes) -> None:
        """Stop the time limit once the headers are there; start it again for the next request."""
        super().data_received(data)
        unfinished = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if not unfinished:
            self._stop()
        elif self._timer is None:
            self._timer = self.loop.call_later(self.patience, self._refuse)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._stop()
        super().connection_lost(exc)

    def _refuse(self) -> None:
        """Answer with the reason before closing: the caller may be busy, and no attacker."""
        if self.conn.our_state is h11.IDLE:
            fields = {"Content-Length": str(len(LATE)), "Content-Type": "application/json"}
            head = h11.Response(
                status_code=408,
                reason="Request Timeout",
                headers=[*{**fields, "Connection": "close"}.items()],
            )
            for event in (head, h11.Data(data=LATE), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None


class Server(uvicorn.Server):
    """uvicorn's server; on a signal it first tells the service to stop, then waits for requests."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal came."""
        self._service.stopping = True
        super().handle_exit(sig, frame)


def bound(host: str, port: int, tokens: Path | None) -> socket.socket:
    """A socket that listens on this address; an error says why there can be none."""
    check_host(host, tokens)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches off Nagle's delay (40 ms here) only for a socket whose protocol is TCP.
    line = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind((host, port))
    except OSError as error:
        line.close()
        reason = error.strerror or error
        raise InputError(f"cannot listen on {host}, port {port}: {reason}") from error
    return line


def serve(service: Service, line: socket.socket) -> None:
    """Answer on a socket until a signal comes; then save every stream."""
    sys.setswitchinterval(SWITCH)  # the owner thread needs the GIL often, for a short time each
    Server(config(service), service).run([line])


@contextmanager
def running(service: Service) -> Iterator[str]:
    """Serve on a free port of this machine from a thread, e.g. in a notebook; yields the URL."""
    with bound("127.0.0.1", 0, None) as line:
        server = Server(config(service), service)
        thread = threading.Thread(target=server.run, args=([line],), daemon=True)
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{line.getsockname()[1]}"
        finally:
            service.stopping = server.should_exit = True
            thread.join()


def config(service: Service) -> uvicorn.Config:
    """uvicorn's settings for a service."""
    from tapr.service import http
    from tapr.service.front import Front

    app = Front(
        http.make(service),
        service.metrics.requests,
        open_to_all=service.settings.tokens is None,
    )
    return uvicorn.Config(
        app,
        http=Impatient,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE,
        h11_max_incomplete_event_size=16_384,
    )
