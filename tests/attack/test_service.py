"""Hostile requests to `tapr serve`: no 500, no path of the server in an answer, no state changed.

A real server on a socket; `TAPR_ATTACK=N` makes N times as many random bodies.
"""

import io
import os
import random
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load

from tapr.datasets.preprocessing import Preprocessing
from tapr.service.server import Impatient, Service, running
from tapr.service.settings import Settings
from tapr.testing import small_model

AREA = "service"
SCALE = int(os.environ.get("TAPR_ATTACK", "1"))
BOSS, CAMERA = "boss-token-0123456789", "camera-token-0123456789"
PREDICT = "/v1/streams/victim/predict"
NPY = {"Content-Type": "application/x-npy"}


def pixels(count: int = 4, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 10, 9, 3), np.uint8)


def saved(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def png(side: int = 10) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "PNG")
    return file.getvalue()


class Target:
    """A server with one adapted stream, and what is known of its state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tokens = folder / "tokens"
        tokens.write_text(f"boss predict,control {BOSS}\ncamera predict {CAMERA}\n")
        settings = Settings(
            folder / "state",
            tokens=tokens,
            max_wait=0.0,
            timeout=1.0,
            max_body=100_000,
            max_images=16,
            max_pixels=10_000,
            max_streams=20,
        )
        self.service = Service(small_model(), Preprocessing((3, 10, 9)), settings, method="tent")
        self._running = running(self.service)
        url = self._running.__enter__()
        self.port = int(url.rpartition(":")[2])
        headers = {"Authorization": f"Bearer {BOSS}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30)
        assert self.http.post(PREDICT, content=saved(pixels()), headers=NPY).status_code == 200
        self.export = self.http.get("/v1/streams/victim/state").content
        self.before = self.state()

    def state(self) -> dict[str, bytes]:
        """The tensors of the stream's state, bit for bit."""
        tensors = load(self.http.get("/v1/streams/victim/state").content)
        return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}

    def raw(self, data: bytes, wait: float = 5.0) -> bytes:
        """Send bytes as they are, and read until the server closes or nothing more comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=wait) as line:
            line.sendall(data)
            found = b""
            try:
                while part := line.recv(65536):
                    found += part
                    if b"\r\n\r\n" in found and b"Connection: keep-alive" not in found:
                        line.settimeout(0.3)
            except (TimeoutError, ConnectionError):
                pass
            return found

    def judge(self, answer: httpx.Response) -> str | None:
        """What is wrong with an answer to a hostile request; None: nothing."""
        if answer.status_code >= 500 and answer.status_code != 503:
            return f"status {answer.status_code}: {answer.text[:200]}"
        if answer.is_success:
            return f"it was accepted: {answer.text[:100]}"
        for secret in (str(self.folder), "site-packages", "Traceback", "/src/", "/home", BOSS):
            if secret in answer.text:
                return f"the answer holds {secret}: {answer.text[:200]}"
        sentence = answer.json().get("error", "")
        return None if len(sentence) > 4 else "no sentence"

    def close(self) -> None:
        self.http.close()
        self._running.__exit__(None, None, None)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("service"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def unharmed(target: Target) -> Iterator[None]:
    """After every test the server lives, and the stream is what it was."""
    yield
    assert target.http.get("/healthz").status_code == 200
    assert target.state() == target.before


def bomb() -> bytes:
    """A small PNG that claims to be 60,000 x 60,000 pixels."""
    side = (60_000).to_bytes(4, "big")
    header = b"IHDR" + side + side + b"\x08\x02\x00\x00\x00"
    rows = zlib.compress(bytes(1_000_000))
    parts = ((header[:4], header[4:]), (b"IDAT", rows), (b"IEND", b""))
    found = b"\x89PNG\r\n\x1a\n"
    for kind, data in parts:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        found += len(data).to_bytes(4, "big") + kind + data + crc
    return found


def form(*parts: bytes, boundary: str = "xx") -> dict[str, Any]:
    head = b'Content-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    edge = f"--{boundary}\r\n".encode()
    body = b"".join(edge + head + part + b"\r\n" for part in parts)
    kind = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return {"content": body + f"--{boundary}--\r\n".encode(), "headers": kind}


BODIES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no type": {"content": b"abc"},
    "unknown type": {"content": b"abc", "headers": {"Content-Type": "text/html"}},
    "too large": {"content": bytes(100_001), "headers": NPY},
    "too large, in chunks": {"content": iter([bytes(50_000)] * 3), "headers": NPY},
    "compressed": {"content": zlib.compress(b"a"), "headers": {**NPY, "Content-Encoding": "gzip"}},
    "empty array": {"content": b"", "headers": NPY},
    "pickled array": {"content": saved([object]), "headers": NPY},
    "array of another size": {"content": saved(pixels()[:, :5]), "headers": NPY},
    "array of too many": {"content": saved(pixels(17)), "headers": NPY},
    "array cut off": {"content": saved(pixels())[:-1], "headers": NPY},
    "array that claims more": {
        "content": saved(pixels()).replace(b"(4, 10, 9, 3), }", b"(9**9, 1, 1,1)}"),
        "headers": NPY,
    },
    "array of NaN": {"content": saved(np.full((1, 3, 10, 9), np.nan, np.float32)), "headers": NPY},
    "bomb": form(bomb()),
    "bomb as image": {"content": bomb(), "headers": {"Content-Type": "image/png"}},
    "large image": form(png(101)),
    "no image": form(b"hello"),
    "too many files": form(*[png()] * 17),
    "one of the files is none": form(png(), b"hello"),
    "form without a boundary": {
        "content": b"--\r\n",
        "headers": {"Content-Type": "multipart/form-data"},
    },
    "form cut off": {**form(png()), "content": form(png())["content"][:60]},
    "form with another field": {"files": {"other": png()}},
    "form with a text": {"data": {"files": "text"}, "files": {"more": b""}},
    "svg": form(b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>'),
    "json that is none": {"content": b"{", "headers": {"Content-Type": "application/json"}},
    "json that nests": {
        "content": b"[" * 90_000,
        "headers": {"Content-Type": "application/json"},
    },
    "json of something else": {"json": {"images": {"a": 1}}},
    "json without base64": {"json": {"images": ["%%%"]}},
    "json with a number": {
        "content": b'{"images": [1e999]}',
        "headers": {"Content-Type": "application/json"},
    },
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str, target: Target, tally: Any) -> None:
    answer = target.http.post(PREDICT, **BODIES[name])
    tally.attempt(AREA, name, lambda: target.judge(answer))
    assert answer.status_code in (413, 415, 422)


def test_random_and_damaged_bodies(target: Target, tally: Any) -> None:
    draws = random.Random(5)
    whole = [
        (saved(pixels()), "application/x-npy"),
        (form(png())["content"], "multipart/form-data"),
    ]
    kinds = ["application/x-npy", "application/json", "image/png", "multipart/form-data"]
    for number in range(60 * SCALE):
        kind = kinds[number % 4]
        body = draws.randbytes(draws.randrange(300))
        if number % 2:
            good, kind = whole[number // 2 % 2]
            at = draws.randrange(len(good))
            body = good[:at] + draws.randbytes(3) if number % 4 == 1 else good[:at]
        if kind == "multipart/form-data":
            kind += "; boundary=xx"
        answer = target.http.post(
            "/v1/streams/scratch/predict", content=body, headers={"Content-Type": kind}
        )
        if not answer.is_success:
            tally.attempt(AREA, f"body {number}", lambda found=answer: target.judge(found))


NAMES = [
    "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "a%2Fb", "a%00b", "A", "-a", ".hidden", "a" * 65,
    "a%0d%0aSet-Cookie:x", "con%20x", "%ff%fe", "a;b", "a?b", "~root", "a\\b", "%E2%80%AE",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_streams(name: str, target: Target, tally: Any) -> None:
    known = set(target.service.engine.known)
    for method, path in (
        ("POST", f"/v1/streams/{name}/predict"),
        ("PUT", f"/v1/streams/{name}/state"),
        ("POST", f"/v1/streams/{name}/reset"),
        ("DELETE", f"/v1/streams/{name}"),
        ("GET", f"/v1/streams/{name}/state"),
    ):
        line = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BOSS}\r\n"
        body = saved(pixels())
        more = f"Content-Type: application/x-npy\r\nContent-Length: {len(body)}\r\n"
        said = target.raw(f"{line}{more}Connection: close\r\n\r\n".encode() + body)
        status = int(said.split()[1])
        good = status in (400, 404, 405, 422) and str(target.folder).encode() not in said
        tally.count(AREA, "fine" if good else "wrong", f"{method} {path}: {said[:200]!r}")
    assert set(target.service.engine.known) == known
    assert {path.name for path in target.folder.iterdir()} == {"state", "tokens"}


def test_wrong_tokens_and_scopes(target: Target, tally: Any) -> None:
    wrong = ("", "Bearer", "Bearer x", f"Bearer {BOSS}x", f"bearer{BOSS}", f"Basic {BOSS}", BOSS)
    calls = (
        ("POST", PREDICT),
        ("DELETE", "/v1/streams/victim"),
        ("GET", "/v1/streams/victim/state"),
        ("GET", "/metrics"),
        ("GET", "/v1/events"),
    )
    for method, path in calls:
        for header in wrong:
            answer = target.http.request(method, path, headers={"Authorization": header})
            assert answer.status_code == 401
            tally.attempt(AREA, f"{path} {header}", lambda found=answer: target.judge(found))
    camera = {"Authorization": f"Bearer {CAMERA}"}
    for method, path in (*calls[1:], ("POST", "/v1/streams/victim/reset")):
        answer = target.http.request(method, path, headers=camera)
        assert answer.status_code == 403
        tally.attempt(AREA, f"{path} with the scope predict", lambda f=answer: target.judge(f))


def test_the_token_counts_before_the_body(target: Target) -> None:
    """Who has no token cannot make the server read what they send."""
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
    began = time.monotonic()
    assert b" 401 " in target.raw(head.encode())
    assert time.monotonic() - began < 0.9


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET  HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\xff\x00\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\n\r\n",
        b"GET /v1/streams HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\r\n b\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_heads_of_requests(head: bytes, target: Target, tally: Any) -> None:
    said = target.raw(head, wait=2.0)
    good = not said or b" 500 " not in said.partition(b"\r\n")[0] + b" "
    tally.count(AREA, "fine" if good else "raw", f"{head[:60]!r}: {said[:100]!r}")


def test_headers_cannot_be_split_by_an_id(target: Target) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Request-ID: a\x0bSet-Cookie: b\r\n\r\n"
    assert b"\r\nset-cookie" not in target.raw(head, wait=1.0).lower()


def test_pages_of_other_sites_are_refused(target: Target, tally: Any) -> None:
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        answer = target.http.post("/v1/streams/victim/reset", headers=headers)
        assert answer.status_code == 403
        tally.attempt(AREA, str(headers), lambda found=answer: target.judge(found))


def test_a_slow_body_is_given_up(target: Target) -> None:
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {BOSS}\r\n"
    more = "Content-Type: application/x-npy\r\nContent-Length: 5000\r\n\r\nabc"
    assert b" 408 " in target.raw((head + more).encode(), wait=10.0)


def test_slow_headers_are_given_up(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Impatient, "patience", 0.5)
    for start in (b"", b"GET /healthz HT"):
        began = time.monotonic()
        assert target.raw(start, wait=10.0).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - began < 5


def test_many_idle_connections_do_not_keep_others_out(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Impatient, "patience", 0.5)
    lines = [socket.create_connection(("127.0.0.1", target.port)) for _ in range(300)]
    time.sleep(1.5)
    assert target.http.get("/healthz").status_code == 200
    for line in lines:
        line.close()


def test_states_that_are_none(target: Target, tally: Any) -> None:
    draws = random.Random(6)
    good = target.export
    wrong = [b"", b"x", good[:-1], good[:100], (1 << 60).to_bytes(8, "little") + good[8:]]
    for _ in range(20 * SCALE):
        at = draws.randrange(len(good) // 2)
        wrong.append(good[:at] + draws.randbytes(4) + good[at + 4 :])
    for number, state in enumerate(wrong):
        answer = target.http.put("/v1/streams/other/state", content=state)
        if not answer.is_success:  # a changed number may still be a state
            tally.attempt(AREA, f"state {number}", lambda found=answer: target.judge(found))
    for snapshot in ("..", "../../state", "/etc/passwd", "a" * 500, "\x00", "20260101T000000.0Z"):
        answer = target.http.post("/v1/streams/victim/rollback", json={"snapshot": snapshot})
        tally.attempt(AREA, snapshot, lambda found=answer: target.judge(found))
    for body in (b"", b"{", b"[]", b"1", b'{"snapshot": 1}', b"[" * 900, bytes(2000)):
        answer = target.http.post("/v1/streams/victim/rollback", content=body)
        tally.attempt(AREA, repr(body[:20]), lambda found=answer: target.judge(found))


def test_queries(target: Target, tally: Any) -> None:
    for query in ("top=0", "top=-1", "top=x", "top=99999", "top=1e9"):
        answer = target.http.post(f"{PREDICT}?{query}", content=saved(pixels()), headers=NPY)
        tally.attempt(AREA, query, lambda found=answer: target.judge(found))
    answer = target.http.get("/v1/events?stream=../x")
    tally.attempt(AREA, "events", lambda: target.judge(answer))


def test_too_many_streams(target: Target, tally: Any) -> None:
    body, statuses = saved(pixels(1)), set()
    for number in range(25):
        answer = target.http.post(f"/v1/streams/n{number}/predict", content=body, headers=NPY)
        statuses.add(answer.status_code)
        if not answer.is_success:
            tally.attempt(AREA, f"stream {number}", lambda found=answer: target.judge(found))
    assert statuses == {200, 403}


def test_control_from_many_sides_at_once(target: Target) -> None:
    """Operators and cameras together: every call has an answer, and the stream one state."""
    statuses: list[int] = []
    token = {"Authorization": f"Bearer {BOSS}"}
    url = f"http://127.0.0.1:{target.port}/v1/streams/n0"
    calls: list[Callable[[], httpx.Response]] = [
        lambda: httpx.post(f"{url}/predict", content=saved(pixels(2)), headers={**NPY, **token}),
        lambda: httpx.post(f"{url}/reset", headers=token),
        lambda: httpx.post(f"{url}/freeze", headers=token),
        lambda: httpx.post(f"{url}/unfreeze", headers=token),
        lambda: httpx.post(f"{url}/snapshots", headers=token),
        lambda: httpx.delete(url, headers=token),
        lambda: httpx.put(f"{url}/state", content=target.export, headers=token),
        lambda: httpx.get(f"{url}/state", headers=token),
    ]

    def work(number: int) -> None:
        mine = [calls[(number + turn * 3) % len(calls)] for turn in range(6 * SCALE)]
        statuses.extend(call().status_code for call in mine)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(statuses) == 36 * SCALE
    assert set(statuses) <= {200, 403, 404}
