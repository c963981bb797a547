"""Small services that several tests share."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tapr import methods
from tapr.runs.preprocess import Preprocessing
from tapr.service.engine import Engine
from tapr.service.server import Server, Service, config
from tapr.service.settings import Settings

SIZE = (3, 10, 9)
Making = Callable[..., Any]


@pytest.fixture
def make_engine(model: nn.Module, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Makes engines on one folder, which are closed in the end."""
    made: list[Engine] = []

    def make(method: str = "steady", *, start: bool = True, **settings: Any) -> Engine:
        settings = {"max_wait": 0.0, "save_every": 3600.0, **settings}
        engine = Engine(
            model, methods.adapt(model, method), Settings(tmp_path / "state", **settings)
        )
        made.append(engine)
        if start:
            engine.start()
        return engine

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def make_service(model: nn.Module, tmp_path: Path) -> Callable[..., Service]:
    def make(method: str = "steady", names: tuple[str, ...] = (), **settings: Any) -> Service:
        settings = {"max_wait": 0.0, "save_every": 3600.0, **settings}
        return Service(
            model,
            Preprocessing(SIZE),
            Settings(tmp_path / "state", **settings),
            method=method,
            names=names,
            title="small",
        )

    return make


@pytest.fixture
def listen(make_service: Making) -> Iterator[Callable[..., str]]:
    """Makes servers on real sockets, and returns their URLs."""
    running: list[tuple[Server, threading.Thread]] = []

    def make(**settings: Any) -> str:
        service = make_service(**settings)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = Server(config(service, "127.0.0.1", port), service)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        end = time.monotonic() + 30
        while not server.started and time.monotonic() < end:
            time.sleep(0.01)
        running.append((server, thread))
        return f"http://127.0.0.1:{port}"

    yield make
    for server, thread in running:
        server.should_exit = True
        server._service.stopping = True
        thread.join(30)
        assert not thread.is_alive()
