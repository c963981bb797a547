"""Several engines behind one server: streams have one replica, and survive it."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from torch import Tensor, nn

from tapr import methods
from tapr.client import Client, RefusedError
from tapr.datasets.preprocessing import Preprocessing
from tapr.service import cluster as clusters
from tapr.service.cluster import Cluster, Gone, Replica
from tapr.service.engine import JOURNAL
from tapr.service.plan import Plan
from tapr.service.server import Service, running
from tapr.service.settings import Settings
from tapr.service.streams import FullError, Streams, UnknownError

SIZE = (3, 10, 9)


def some(count: int, seed: int = 0) -> Tensor:
    noise = torch.rand(count, *SIZE, generator=torch.Generator().manual_seed(seed))
    return noise.cumsum(3) / 9


class Machines:
    """Replicas of this process, which can be killed, and replaced."""

    def __init__(self, plan: Plan, count: int) -> None:
        self.plan = replace(plan, settings=replace(plan.settings, journal=False))
        self.replicas = [Replica(self.plan) for _ in range(count)]
        self.killed: set[int] = set()
        self.cut_off: set[int] = set()  # alive, but out of reach
        self.calls: list[tuple[int, str]] = []

    async def call(self, number: int, what: str, *arguments: Any) -> Any:
        self.calls.append((number, what))
        if number in self.killed | self.cut_off:
            raise Gone
        result = await getattr(self.replicas[number], what)(*arguments)
        await asyncio.sleep(0)
        if number in self.killed:  # before the answer came
            raise Gone
        return result

    def replace(self, number: int) -> None:
        self.replicas[number] = Replica(self.plan)
        self.killed.discard(number)

    def stop(self) -> None:
        for replica in self.replicas:
            replica._engine.close()


@pytest.fixture
def start(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Cluster, Machines]]]:
    monkeypatch.setattr(clusters, "EVERY", 0.02)
    with ExitStack() as stack:

        def make(method: str = "tent", **settings: Any) -> tuple[Cluster, Machines]:
            told = {"max_wait": 0.0, "save_every": 0.0, "journal": True, **settings}
            plan = Plan(model, SIZE, Settings(tmp_path / "state", **told), method, {}, "cpu")
            here = plan.engine()
            machines = Machines(plan, 2)
            cluster = Cluster(here, machines.call, 2, machines.stop)
            cluster.start()
            stack.callback(cluster.close)
            return cluster, machines

        yield make


def place(cluster: Cluster, name: str) -> int:
    found = cluster._places[name]
    assert found is not None
    return found


def saved(cluster: Cluster, name: str) -> None:
    cluster.ask(name, partial(Streams.snapshot, name=name)).result(30)


def test_streams_are_spread_and_stay_where_they_are(
    start: Callable[..., tuple[Cluster, Machines]], model: nn.Module
) -> None:
    cluster, _ = start()
    alone = {name: methods.adapt(model, "tent") for name in "abcd"}
    for seed in range(3):
        for name, adapter in alone.items():
            answer = cluster.submit(name, some(4, seed), f"{name}{seed}").result(30)
            expected = adapter(some(4, seed)).float().softmax(1)
            assert torch.equal(answer.probabilities, expected)
    assert sorted(place(cluster, name) for name in alone) == [0, 0, 1, 1]
    report = cluster.report().result(30)
    assert [(row["stream"], row["replica"]) for row in report.streams] == [
        (name, place(cluster, name)) for name in "abcd"
    ]
    assert (sum(report.images.values()), report.batches, report.steps) == (48, 12, 12)


def test_the_streams_of_a_killed_replica_come_back_on_another_one(
    start: Callable[..., tuple[Cluster, Machines]], model: nn.Module, tmp_path: Path
) -> None:
    cluster, machines = start()
    cluster.submit("a", some(4), "r0").result(30)
    saved(cluster, "a")
    lost = place(cluster, "a")
    machines.killed.add(lost)
    answer = cluster.submit("a", some(4, 1), "r1").result(30)
    assert place(cluster, "a") == 1 - lost
    alone = methods.adapt(model, "tent")
    alone(some(4))
    assert torch.equal(answer.probabilities, alone(some(4, 1)).float().softmax(1))
    assert answer.batch == 2
    machines.replace(lost)
    cluster.submit("a", some(4, 2), "r2").result(30)
    assert place(cluster, "a") == 1 - lost  # it does not move back
    with sqlite3.connect(tmp_path / "state" / JOURNAL) as file:
        logged = file.execute("SELECT DISTINCT request FROM predictions ORDER BY 1").fetchall()
    assert logged == [("r0",), ("r1",), ("r2",)]


def test_a_request_under_way_is_answered_by_another_replica(
    start: Callable[..., tuple[Cluster, Machines]],
) -> None:
    cluster, machines = start(max_wait=0.2)
    cluster.submit("a", some(1), "r0").result(30)
    lost = place(cluster, "a")
    waiting = cluster.submit("a", some(1, 1), "r1")
    machines.killed.add(lost)
    assert waiting.result(30).together == 1
    assert place(cluster, "a") == 1 - lost


def test_a_replica_that_was_cut_off_overwrites_nothing(
    start: Callable[..., tuple[Cluster, Machines]], model: nn.Module, tmp_path: Path
) -> None:
    cluster, machines = start(save_every=3600.0)
    cluster.submit("a", some(4), "r0").result(30)
    lost = place(cluster, "a")
    machines.cut_off.add(lost)
    alone = methods.adapt(model, "tent")  # nothing was saved: the stream begins anew
    for seed in (1, 2):
        answer = cluster.submit("a", some(4, seed), "r").result(30)
        assert torch.equal(answer.probabilities, alone(some(4, seed)).float().softmax(1))
    saved(cluster, "a")
    path = tmp_path / "state" / "streams" / "a" / "state.safetensors"
    before = path.read_bytes()
    machines.replicas[lost]._engine.close()  # it saves whatever is its own
    assert path.read_bytes() == before


def test_a_stream_that_returns_is_read_anew(
    start: Callable[..., tuple[Cluster, Machines]], model: nn.Module
) -> None:
    cluster, machines = start()
    cluster.submit("a", some(4), "r0").result(30)
    saved(cluster, "a")
    first = place(cluster, "a")
    machines.cut_off.add(first)
    cluster.submit("a", some(4, 1), "r1").result(30)
    saved(cluster, "a")
    machines.cut_off = {1 - first}
    end = time.monotonic() + 30
    while cluster._down[first].is_set():
        assert time.monotonic() < end
        time.sleep(0.01)
    answer = cluster.submit("a", some(4, 2), "r2").result(30)
    assert place(cluster, "a") == first
    alone = methods.adapt(model, "tent")
    for seed in range(3):
        expected = alone(some(4, seed)).float().softmax(1)
    assert torch.equal(answer.probabilities, expected)


def test_without_replicas_requests_are_refused(
    start: Callable[..., tuple[Cluster, Machines]],
) -> None:
    cluster, machines = start()
    machines.killed = {0, 1}
    with pytest.raises(Gone):
        cluster.submit("a", some(1), "r").result(30)
    assert not cluster.alive


def test_limits_and_unknown_streams(start: Callable[..., tuple[Cluster, Machines]]) -> None:
    cluster, _ = start(max_streams=2)
    for name in ("a", "b"):
        cluster.submit(name, some(1), "r").result(30)
    with pytest.raises(FullError):
        cluster.submit("c", some(1), "r")
    with pytest.raises(UnknownError):
        cluster.ask("c", partial(Streams.reset, name="c")).result(30)
    with pytest.raises(UnknownError):
        cluster.look("c", ()).result(30)
    cluster.ask("a", partial(Streams.delete, name="a")).result(30)
    assert cluster.submit("c", some(1), "r").result(30).batch == 1
    assert [row["stream"] for row in cluster.report().result(30).streams] == ["b", "c"]


def test_a_server_of_replicas_over_http(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "EVERY", 0.02)
    kept: list[Machines] = []

    def engine(plan: Plan) -> Cluster:
        machines = Machines(plan, 2)
        kept.append(machines)
        return Cluster(plan.engine(), machines.call, 2, machines.stop)

    settings = Settings(tmp_path / "state", max_wait=0.0, save_every=0.0)
    images = (some(4).numpy() * 255).astype("uint8").transpose(0, 2, 3, 1)
    with (
        running(Service(model, Preprocessing(SIZE), settings, engine=engine)) as url,
        Client(url) as client,
    ):
        client.predict("a", images)
        snapshot = client.snapshot("a")
        state = client.export("a")
        client.adopt("b", state)
        client.predict("a", images)
        client.roll_back("a", snapshot)
        client.freeze("a")
        assert client.predict("a", images).mode == "frozen"
        assert client.snapshots("a") == [snapshot]
        rows = {row["stream"]: row for row in client.streams()}
        assert {rows["a"]["replica"], rows["b"]["replica"]} == {0, 1}
        kept[0].killed.add(rows["a"]["replica"])
        assert client.predict("a", images).mode == "frozen"
        assert client.stream("a")["frozen"]
        with pytest.raises(RefusedError, match="no stream 'z'"):
            client.stream("z")
        events = partial(httpx.get, f"{url}/v1/events", timeout=30)
        kept[0].killed = {0, 1}
        assert events().text.count("data: ") <= 1  # it ends, and the page connects anew
        with pytest.raises(RefusedError, match="no replica answers") as caught:
            client.predict("a", images)
        assert (caught.value.status, caught.value.retry_after) == (503, 5.0)
        kept[0].killed.clear()
    with running(Service(model, Preprocessing(SIZE), settings)) as url, Client(url) as client:
        assert {row["stream"] for row in client.streams()} == {"a", "b"}
        assert client.predict("a", images).mode == "frozen"
