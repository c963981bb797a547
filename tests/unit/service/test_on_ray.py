"""`tapr serve --on ray` as a user starts it: two replicas, one of which is killed."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np
import pytest

from tapr.client import Client, RefusedError
from tapr.service.on_ray import application

pytest.importorskip("ray.serve", reason="ray[serve] is not installed", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.ray]
STREAMS = [f"camera-{number}" for number in range(4)]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Client]:
    """A client of a server in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--model", "cifar10-small", "--port", str(port), "--on", "ray"]
    words += ["--state", str(tmp_path / "state"), "--log-predictions", "--save-every", "0"]
    environment = {**os.environ, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "tapr.cli", *words], stderr=log, env=environment
        )
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            end = time.monotonic() + 400
            while not _ready(client):
                said = (tmp_path / "log").read_text()
                if server.poll() is not None and "timed out during startup" in said:
                    pytest.skip("Ray did not start within its own 30 s: the machine is too busy")
                assert server.poll() is None, said
                assert time.monotonic() < end, said
                time.sleep(0.5)
            yield client
    finally:
        server.terminate()
        server.wait(120)


def _ready(client: Client) -> bool:
    try:
        client.streams()
    except (httpx.TransportError, RefusedError):
        return False
    return True


def process(folder: Path, replica: int) -> int:
    """The process of a replica: its title has the name of its application."""
    name = application(folder, replica)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                if b"ServeReplica:" + name.encode() in (entry / "cmdline").read_bytes():
                    return int(entry.name)
    raise AssertionError(f"no process of {name}")


def content(state: bytes) -> tuple[object, bytes]:
    """A saved state: its header, in which safetensors orders the metadata anew, and its tensors."""
    end = 8 + int.from_bytes(state[:8], "little")
    return json.loads(state[8:end]), state[end:]


def test_streams_survive_the_replica_that_had_them(served: Client, tmp_path: Path) -> None:
    walk = np.random.default_rng(0).normal(0, 20, (8, 32, 32, 3)).cumsum(2) + 128
    images = walk.clip(0, 255).astype(np.uint8)
    answered = [served.predict(name, images).request for name in STREAMS]
    for name in STREAMS:
        served.snapshot(name)  # and so it is saved
    rows = {row["stream"]: row for row in served.streams()}
    assert sorted(row["replica"] for row in rows.values()) == [0, 0, 1, 1]
    kept = {name: content(served.export(name)) for name in STREAMS}

    with pytest.raises(RefusedError, match="no stream 'nobody'"):
        served.stream("nobody")
    with pytest.raises(RefusedError, match="not a state saved by tapr"):
        served.adopt(STREAMS[0], b"no state")

    lost = rows[STREAMS[0]]["replica"]
    os.kill(process(tmp_path / "state", lost), signal.SIGKILL)
    for name in STREAMS:
        assert content(served.export(name)) == kept[name]
        answer = served.predict(name, images)
        assert answer.batch == 2
        answered.append(answer.request)
    # Whoever asked while the replica was gone is with the other one; Ray may have started it anew
    # before the next one asked.
    places = {row["stream"]: row["replica"] for row in served.streams()}
    assert all(places[name] == 1 - lost for name in STREAMS if rows[name]["replica"] != lost)
    assert None not in places.values()
    with sqlite3.connect(tmp_path / "state" / "predictions.sqlite") as file:
        logged = {row[0] for row in file.execute("SELECT request FROM predictions")}
    assert set(answered) <= logged
    assert not (tmp_path / ".ray").exists()  # no token is left in the home folder
