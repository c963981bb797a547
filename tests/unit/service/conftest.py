"""Small services that several tests share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from tapr import methods
from tapr.datasets.preprocessing import Preprocessing
from tapr.service.engine import Engine
from tapr.service.server import Service, running
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
    with ExitStack() as stack:

        def make(**settings: Any) -> str:
            return stack.enter_context(running(make_service(**settings)))

        yield make
