"""`tapr serve --on ray` with replicas killed under load: is anything that was answered lost?

    python -m benchmarks.ray_replicas [--kills 3] [--seconds 15] [--json FILE]

Two replicas of `cifar10-small` with `steady` on a Ray of this machine; eight clients send requests
of two images to a stream each. Again and again the replica that has the first stream is killed
(SIGKILL), once Ray has started the one before anew. Every answer must be in the record of
predictions; a stream goes on with the state that was saved last, at most about `--save-every` (1 s)
old, and is never begun anew.
"""

import argparse
import json
import os
import signal
import sqlite3
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from benchmarks.serve import NPY, Running, body, made

from tapr.service.on_ray import application

CLIENTS = 8
WAIT = 120  # seconds, at the most
OPTIONS = ("--on", "ray", "--replicas", "2", "--log-predictions", "--save-every", "1")


class Answered(NamedTuple):
    when: float
    request: str
    batch: int


class Load:
    """Clients that send as fast as they are answered, and what they saw."""

    def __init__(self, server: Running) -> None:
        self.server, self.ended = server, threading.Event()
        self.statuses = Counter[str]()
        self.answered: list[list[Answered]] = [[] for _ in range(CLIENTS)]
        self.threads = [threading.Thread(target=self._work, args=(n,)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _work(self, number: int) -> None:
        sent = body(made(2, number))
        with httpx.Client(base_url=self.server.url, timeout=60) as client:
            while not self.ended.is_set():
                path = f"/v1/streams/s{number}/predict"
                try:
                    answer = client.post(path, content=sent, headers=NPY)
                except httpx.TransportError as error:
                    self.statuses[type(error).__name__] += 1
                    continue
                self.statuses[str(answer.status_code)] += 1
                if answer.status_code == 200:
                    content = answer.json()
                    told = Answered(time.monotonic(), content["request"], content["batch"])
                    self.answered[number].append(told)

    def end(self) -> None:
        self.ended.set()
        for thread in self.threads:
            thread.join()


def places(server: Running) -> dict[str, int | None]:
    return {row["stream"]: row["replica"] for row in server.get("/v1/streams")["streams"]}


def process(folder: Path, replica: int) -> int:
    """The process of a replica: its title has the name of its application."""
    title = f"ServeReplica:{application(folder, replica)}".encode()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if title in (entry / "cmdline").read_bytes():
                    return int(entry.name)
    raise AssertionError(f"no process of replica {replica}")


def settled(server: Running, lost: int | None) -> dict[str, int | None]:
    """Wait until the killed replica, started anew, takes new streams; where each stream is."""
    sent, end = body(made(1)), time.monotonic() + WAIT
    while time.monotonic() < end:
        httpx.post(f"{server.url}/v1/streams/probe/predict", content=sent, headers=NPY, timeout=60)
        found = places(server)
        httpx.delete(f"{server.url}/v1/streams/probe", timeout=60)
        if lost in (None, found.pop("probe", None)) and len(found) == CLIENTS:
            return found
        time.sleep(1)
    raise AssertionError(f"after {WAIT} s: streams are {found}, and a new one must be on {lost}")


def killed(server: Running, folder: Path, load: Load, seconds: float) -> dict[str, Any]:
    """Kill the replica of the first stream, and look at what its streams go through."""
    before = places(server)
    lost = before["s0"]
    assert lost is not None
    when = time.monotonic()
    os.kill(process(folder, lost), signal.SIGKILL)
    had = [number for number in range(CLIENTS) if before[f"s{number}"] == lost]
    while any(load.answered[number][-1].when <= when for number in had):
        assert time.monotonic() - when < WAIT, "a stream has no answer after two minutes"
        time.sleep(0.1)
    pauses, again = [], []
    for number in had:
        seen = list(load.answered[number])
        last = max(each for each in seen if each.when <= when)
        first = min(each for each in seen if each.when > when)
        pauses.append(first.when - last.when)
        again.append(last.batch + 1 - first.batch)
    after = settled(server, lost)
    time.sleep(seconds)
    return {
        "streams of the replica": len(had),
        "went elsewhere": sum(after[f"s{number}"] != lost for number in had),
        "longest pause, s": round(max(pauses), 1),
        "batches of adaptation lost, at most": max(again),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of load between kills")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "state"
        server = Running(folder, *OPTIONS)
        load = Load(server)
        try:
            settled(server, None)
            time.sleep(given.seconds)
            kills = [killed(server, folder, load, given.seconds) for _ in range(given.kills)]
        finally:
            load.end()
            server.stop()
        with sqlite3.connect(folder / "predictions.sqlite") as file:
            logged = {row[0] for row in file.execute("SELECT request FROM predictions")}
    requests = {each.request for answers in load.answered for each in answers}
    found = {
        "kills": kills,
        "statuses": dict(load.statuses),
        "answered": len(requests),
        "answered without a record": len(requests - logged),
        "streams begun anew": sum(
            any(each.batch == 1 for each in answers[1:]) for answers in load.answered
        ),
    }
    print(json.dumps(found, indent=2))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    assert found["answered without a record"] == found["streams begun anew"] == 0
    assert set(load.statuses) <= {"200", "429", "503"}, load.statuses


if __name__ == "__main__":
    main()
