"""`tapr serve` beside the library: throughput, latency, memory, accuracy, overload, kills.

    python -m benchmarks.serve [--parts throughput,streams,...] [--minutes 10] [--kills 20]
        [--images 2000] [--json results/serve.json]

A real server in a process of its own, on `cifar10-small` with `steady`; clients in this process.
Server and library have one torch thread each. Times are wall-clock, so that rounds of the library
and of the server take turns; on a busy machine the ratios mean more than the numbers. A part fails
when something is lost, wrong or neither answered nor refused.
"""

import argparse
import itertools
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

import tapr
from tapr import corruptions, datasets, methods

MODEL = "cifar10-small"
CLIENTS = 16
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
NPY = {"Content-Type": "application/x-npy"}
REFUSED = (429, 503)  # the queue is full; no answer within --timeout, on a starved machine
Pixels = NDArray[np.uint8]


class Running:
    """A server, and how to ask it."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "tapr.cli", "serve", "--model", MODEL]
        self.process = subprocess.Popen(
            [*command, "--state", str(folder), "--port", str(port), *options],
            env=ENVIRONMENT,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(1200):
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                assert self.process.poll() is None, "the server did not start"
                time.sleep(0.1)
        raise AssertionError("the server is not ready after two minutes")

    @property
    def mib(self) -> float:
        """The server's memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def get(self, path: str) -> Any:
        return httpx.get(self.url + path, timeout=60).json()

    def stop(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)
        self.process.wait(120)


@contextmanager
def serving(*options: str) -> Iterator[Running]:
    with tempfile.TemporaryDirectory() as folder:
        server = Running(Path(folder) / "state", *options)
        try:
            yield server
        finally:
            server.stop()


def body(pixels: Pixels) -> bytes:
    file = tempfile.SpooledTemporaryFile(max_size=1 << 30)  # noqa: SIM115
    npy.write_array(file, pixels, allow_pickle=False)
    file.seek(0)
    with file:
        return file.read()


def made(count: int, seed: int = 0) -> Pixels:
    """Made-up images with some structure: the guard tells mere noise from images."""
    walk = np.random.default_rng(seed).normal(0, 20, (count, 32, 32, 3)).cumsum(2) + 128
    return walk.clip(0, 255).astype(np.uint8)


def together(work: Callable[[int], None], clients: int = CLIENTS) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def quantiles(seconds: list[float]) -> dict[str, float]:
    found = np.quantile(seconds, (0.5, 0.95, 0.99))
    return {f"p{q}": round(1000 * v, 1) for q, v in zip((50, 95, 99), found, strict=True)}


def throughput(rounds: int, seconds: float) -> dict[str, Any]:
    """Images per second at saturation, in turns with the library and the bare forward."""
    torch.set_num_threads(1)
    model = methods.find_model(MODEL, None).eval()
    adapter = tapr.adapt(model)
    images = torch.from_numpy(made(64)).permute(0, 3, 1, 2).float().div(255)

    def pace(call: Callable[[torch.Tensor], object]) -> float:
        call(images)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            call(images)
            done += len(images)
        return done / (time.perf_counter() - began)

    def forward(given: torch.Tensor) -> None:
        with torch.no_grad():
            model(given)

    found: dict[str, list[float]] = {"forward": [], "library": [], "service": []}
    sent = body(made(16))
    with serving("--max-wait", "20") as server:
        clients = [httpx.Client(base_url=server.url, timeout=60) for _ in range(CLIENTS)]

        def pace_server() -> float:
            end = time.perf_counter() + seconds

            def work(number: int) -> None:
                path = f"/v1/streams/s{number % 2}/predict"
                while time.perf_counter() < end:
                    answer = clients[number].post(path, content=sent, headers=NPY)
                    assert answer.status_code == 200, answer.text

            before, began = _images(server), time.perf_counter()
            together(work)
            return (_images(server) - before) / (time.perf_counter() - began)

        pace_server()
        for _ in range(rounds):
            found["forward"].append(pace(forward))
            found["library"].append(pace(adapter))
            found["service"].append(pace_server())
        latency = {f"{n} clients, one image": _latency(server, n, seconds) for n in (1, CLIENTS)}
        for client in clients:
            client.close()
    mean = {name: sum(values) / rounds for name, values in found.items()}
    return {
        "images per second": {name: round(value) for name, value in mean.items()},
        "rounds": {name: [round(v) for v in values] for name, values in found.items()},
        "service / library": round(mean["service"] / mean["library"], 3),
        "service / forward": round(mean["service"] / mean["forward"], 3),
        "milliseconds": latency,
        "milliseconds of one image in the library": quantiles(_alone(adapter, images[:1], seconds)),
    }


def _images(server: Running) -> int:
    return sum(each["images"] for each in server.get("/v1/streams")["streams"])


def _alone(adapter: tapr.Adapter, images: torch.Tensor, seconds: float) -> list[float]:
    took: list[float] = []
    while sum(took) < seconds:
        began = time.perf_counter()
        adapter(images)
        took.append(time.perf_counter() - began)
    return took


def _latency(server: Running, clients: int, seconds: float) -> dict[str, float]:
    sent, took = body(made(1)), []
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while time.perf_counter() < end:
                began = time.perf_counter()
                client.post("/v1/streams/one/predict", content=sent, headers=NPY)
                took.append(time.perf_counter() - began)

    together(work, clients)
    return quantiles(took)


def streams(count: int) -> dict[str, Any]:
    """The memory of many streams, all of them in memory."""
    with serving("--in-memory", str(count), "--save-every", "3600", "--max-wait", "0") as server:
        sent = body(made(2))
        with httpx.Client(base_url=server.url, timeout=60) as client:
            client.post("/v1/streams/first/predict", content=sent, headers=NPY)
            before = server.mib
            for number in range(count - 1):
                path = f"/v1/streams/s{number}/predict"
                answer = client.post(path, content=sent, headers=NPY)
                assert answer.status_code == 200, answer.text
        about = server.get("/v1/server")
        assert about["streams"] == count
        return {
            "streams": count,
            "MiB of the server": round(server.mib),
            "MiB with one stream": round(before),
            "bytes of state per stream": about["state_bytes"] // count,
        }


def accuracy(count: int) -> dict[str, Any]:
    """Sixteen clients with single images: equal to the library on the batches that came about."""
    torch.set_num_threads(1)
    data = datasets.load("cifar10")
    numbers = np.arange(count)
    clean, labels = data.images[numbers], np.asarray(data.labels)[numbers]
    results = {}
    for name in ("gaussian_noise", "fog"):
        pixels = corruptions.corrupt(clean, name, 5)
        results[name] = _accuracy(pixels, labels)
    return results


def _accuracy(pixels: Pixels, labels: NDArray[Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        server = Running(
            state, "--log-predictions", "--max-batch", str(CLIENTS), "--max-wait", "50"
        )
        following = itertools.count()

        def work(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                while (place := next(following)) < len(pixels):
                    headers = {**NPY, "X-Request-ID": str(place)}
                    sent = body(pixels[place : place + 1])
                    answer = client.post("/v1/streams/a/predict", content=sent, headers=headers)
                    assert answer.status_code == 200, answer.text

        together(work)
        server.stop()
        with sqlite3.connect(state / "predictions.sqlite") as file:
            rows = file.execute(
                "SELECT batch, request, class, probability FROM predictions ORDER BY id"
            ).fetchall()
    assert sorted(int(row[1]) for row in rows) == list(range(len(pixels)))
    library = tapr.adapt(methods.find_model(MODEL, None).eval())
    right = different = 0
    sizes = []
    for _, group in itertools.groupby(rows, key=lambda row: row[0]):
        batch = list(group)
        places = [int(row[1]) for row in batch]
        sizes.append(len(batch))
        values, classes = library(_tensor(pixels[places])).softmax(1).max(1)
        said = [(row[2], row[3]) for row in batch]
        different += said != list(zip(classes.tolist(), values.tolist(), strict=True))
        right += int((np.array([row[2] for row in batch]) == labels[places]).sum())
    whole = tapr.adapt(methods.find_model(MODEL, None).eval())
    by_200 = sum(
        int(
            (whole(_tensor(pixels[at : at + 200])).argmax(1).numpy() == labels[at : at + 200]).sum()
        )
        for at in range(0, len(pixels), 200)
    )
    assert different == 0, f"{different} of {len(sizes)} batches differ from the library's"
    return {
        "images": len(pixels),
        "accuracy through the service": round(100 * right / len(pixels), 2),
        "accuracy in batches of 200": round(100 * by_200 / len(pixels), 2),
        "batches": len(sizes),
        "images in a batch": round(sum(sizes) / len(sizes), 1),
        "batches that differ from the library": different,
    }


def _tensor(pixels: Pixels) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)


def overload(minutes: float) -> dict[str, Any]:
    """Twice as many images as the server answers: every request is answered or refused."""
    sent, statuses = body(made(8)), Counter[str]()
    clients = 4 * CLIENTS
    with serving("--max-queue", "64", "--max-batch", "32") as server:
        pace = [_capacity(server, sent)]  # images per second that the server answers
        memory: list[float] = []
        began = time.perf_counter()
        end = began + 60 * minutes

        def work(number: int) -> None:
            with httpx.Client(base_url=server.url, timeout=60) as client:
                due = time.perf_counter() + number * 8 / (2 * pace[0])
                while due < end:
                    time.sleep(max(0.0, due - time.perf_counter()))
                    due = max(due, time.perf_counter() - 1) + clients * 8 / (2 * pace[0])
                    path = f"/v1/streams/s{number % 4}/predict"
                    try:
                        answer = client.post(path, content=sent, headers=NPY)
                        statuses[str(answer.status_code)] += 1
                        if answer.status_code not in (200, *REFUSED):
                            print(answer.status_code, answer.text, flush=True)
                    except httpx.TransportError as error:
                        statuses[type(error).__name__] += 1

        def watch() -> None:
            while time.perf_counter() < end:
                before = statuses["200"]
                time.sleep(5)
                memory.append(server.mib)
                pace[0] = max(pace[0], 8 * (statuses["200"] - before) / 5)

        watcher = threading.Thread(target=watch)
        watcher.start()
        together(work, clients)
        took = time.perf_counter() - began
        watcher.join()
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        assert set(statuses) <= {"200", *map(str, REFUSED)}, statuses
        return {
            "minutes": round(took / 60, 2),
            "answered, images per second": round(8 * statuses["200"] / took),
            "sent / answered": round(sum(statuses.values()) / statuses["200"], 2),
            "statuses": dict(statuses),
            "MiB after a quarter": round(memory[len(memory) // 4], 1),
            "MiB at the end": round(memory[-1], 1),
        }


def _capacity(server: Running, sent: bytes, seconds: float = 5.0) -> float:
    end = time.perf_counter() + seconds

    def work(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while time.perf_counter() < end:
                client.post(f"/v1/streams/s{number % 4}/predict", content=sent, headers=NPY)

    before, began = _images(server), time.perf_counter()
    together(work)
    return (_images(server) - before) / (time.perf_counter() - began)


def kills(count: int) -> dict[str, Any]:
    """kill -9 under load: all streams come back, and nothing that was answered is lost."""
    answered: list[str] = []
    named: set[str] = set()
    sent = body(made(1))
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        for _ in range(count):
            server = Running(state, "--log-predictions", "--save-every", "1")
            back = {each["stream"] for each in server.get("/v1/streams")["streams"]}
            assert named <= back, f"lost streams: {named - back}"

            first: dict[str, float] = {}

            def work(number: int, url: str = server.url, first: dict[str, float] = first) -> None:
                with httpx.Client(base_url=url, timeout=60) as client:
                    while True:
                        try:
                            path = f"/v1/streams/s{number}/predict"
                            answer = client.post(path, content=sent, headers=NPY)
                        except httpx.TransportError:
                            return
                        if answer.status_code == 200:
                            answered.append(answer.json()["request"])
                            first.setdefault(f"s{number}", time.perf_counter())

            killer = threading.Timer(4.0, server.stop, (signal.SIGKILL,))
            killer.start()
            together(work, 8)
            killer.join()
            end = time.perf_counter()
            named |= {name for name, when in first.items() if end - when > 2}  # beyond an interval
        server = Running(state, "--log-predictions")
        back = {each["stream"] for each in server.get("/v1/streams")["streams"]}
        assert named <= back, f"lost streams: {named - back}"
        for name in sorted(back):
            path = f"{server.url}/v1/streams/{name}/predict"
            assert httpx.post(path, content=sent, headers=NPY, timeout=60).status_code == 200
        server.stop()
        with sqlite3.connect(state / "predictions.sqlite") as file:
            logged = {row[0] for row in file.execute("SELECT request FROM predictions")}
    lost = set(answered) - logged
    assert not lost, f"{len(lost)} answered predictions have no record"
    return {"kills": count, "answered": len(answered), "lost": 0, "streams back": len(back)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="throughput,streams,accuracy,overload,kills")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a round")
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "throughput": lambda: throughput(given.rounds, given.seconds),
        "streams": lambda: streams(given.streams),
        "accuracy": lambda: accuracy(given.images),
        "overload": lambda: overload(given.minutes),
        "kills": lambda: kills(given.kills),
    }
    found = {}
    for name in given.parts.split(","):
        found[name] = parts[name]()
        print(name, json.dumps(found[name], indent=2), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
