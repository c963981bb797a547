"""`tapr serve` as a process: it starts, stops on a signal, and survives being killed."""

import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from typer.testing import CliRunner

from tapr.cli import app
from tapr.client import Client, RefusedError


def images(count: int = 2, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), np.uint8)


class Running:
    """A server in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "tapr.cli", "serve", "--model", "cifar10-small"]
        self.process = subprocess.Popen(
            [*command, "--state", str(folder), "--port", str(port), *options],
            stderr=subprocess.PIPE,
        )
        self.url = f"http://127.0.0.1:{port}"
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        self.process.kill()
        raise AssertionError(self.process.communicate()[1].decode())

    def stop(self, number: int) -> str:
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1].decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.mark.slow
def test_after_a_signal_and_after_a_kill_the_same_command_resumes(folder: Path) -> None:
    """A signal saves what no throttle had saved; a kill loses no answer and no stream."""
    server = Running(folder, "--save-every", "3600")
    with Client(server.url) as client:
        client.predict("a", images())
        assert not (folder / "streams" / "a" / "state.safetensors").exists()
    said = server.stop(signal.SIGTERM)
    assert server.process.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in said
    assert (folder / "streams" / "a" / "state.safetensors").exists()

    server = Running(folder, "--log-predictions", "--save-every", "0.2")
    with Client(server.url) as client:
        assert [(s["stream"], s["images"]) for s in client.streams()] == [("a", 2)]
        assert client.predict("a", images()).batch == 2
    answered: list[str] = []
    named = {"a"}

    def load(url: str, number: int) -> None:
        with Client(url, timeout=10) as client:
            for turn in range(10_000):
                name = f"s{number}"
                try:
                    answered.append(client.predict(name, images(1, turn)).request)
                    named.add(name)
                except (httpx.TransportError, RefusedError):
                    return

    threads = [threading.Thread(target=load, args=(server.url, n)) for n in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(1.5)
    assert "1 streams resumed" in server.stop(signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    with sqlite3.connect(folder / "predictions.sqlite") as file:
        logged = {row[0] for row in file.execute("SELECT request FROM predictions")}
    assert len(answered) > 2
    assert set(answered) <= logged
    server = Running(folder)
    with Client(server.url) as client:
        assert named == {each["stream"] for each in client.streams()}
        for name in named:
            client.predict(name, images(1))
    server.stop(signal.SIGTERM)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--host", "0.0.0.0"], "expected --tokens with --host 0.0.0.0"),
        (["--tokens", "none"], "cannot read the tokens"),
        (["--alarm", "ftp://a"], "begin with http or https"),
        (["--method", "tnet"], "did you mean 'tent'"),
        (["--option", "lr"], "name=value"),
    ],
)
def test_what_cannot_be_served(words: list[str], sentence: str, folder: Path) -> None:
    command = ["serve", "--model", "cifar10-small", "--state", str(folder), *words]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert re.search(re.escape(sentence), str(result.exception))


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        words = ["serve", "--model", "cifar10-small", "--state", str(folder), "--port", port]
        result = CliRunner().invoke(app, words)
    assert str(result.exception).startswith(f"cannot listen on 127.0.0.1, port {port}: ")
    assert not folder.exists()
