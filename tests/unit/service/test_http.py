"""The service over HTTP, on a real socket."""

import base64
import io
import json
import logging
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tapr import methods
from tapr.client import Client, RefusedError
from tapr.errors import DataError
from tapr.service import images as bodies
from tapr.service.engine import Closed, Engine
from tapr.service.front import Lines
from tapr.service.security import HEADERS
from tapr.service.server import bound

Listen = Callable[..., str]
LONG = "0123456789abcdef"


def images(count: int = 2, seed: int = 0) -> Any:
    noise = np.random.default_rng(seed).random((count, 10, 9, 3))
    return (noise.cumsum(2) / 9 * 255).astype(np.uint8)  # with some structure: noise is harm


def tensor(pixels: Any) -> torch.Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div(255)


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_the_client_gets_what_the_library_predicts(listen: Listen, model: nn.Module) -> None:
    url = listen(names=("a", "b", "c", "d", "e"))
    alone = methods.adapt(model)
    with Client(url) as client:
        for turn in range(3):
            answer = client.predict("camera-1", images(4, turn), top=3)
            expected = alone(tensor(images(4, turn))).float().softmax(1)
            values, classes = expected.topk(3)
            assert [[t.number for t in p.top] for p in answer.predictions] == classes.tolist()
            assert [[t.probability for t in p.top] for p in answer.predictions] == values.tolist()
            assert (answer.mode, answer.batch, answer.together) == ("adapted", turn + 1, 4)
            assert answer.predictions[0].name == "abcde"[answer.predictions[0].number]
            assert set(answer.seconds) == {"decoding", "waiting", "predicting", "total"}
        as_files = client.predict("camera-2", [png(each) for each in images(4)])
        as_array = client.predict("camera-3", images(4))
        assert as_files.predictions == as_array.predictions


def test_bodies_of_every_kind(listen: Listen, tmp_path: Path) -> None:
    url = f"{listen()}/v1/streams/a/predict"
    file = png(images()[0])
    text = {"images": [base64.b64encode(file).decode()]}
    answers = [
        httpx.post(url, files={"files": file}),
        httpx.post(url, content=file, headers={"Content-Type": "image/png"}),
        httpx.post(url, json=text),
    ]
    assert [answer.status_code for answer in answers] == [200] * 3
    (tmp_path / "one.png").write_bytes(file)
    with Client(url.partition("/v1")[0]) as client:
        assert client.predict("a", [tmp_path / "one.png"]).adapted


def test_an_operator_controls_streams(listen: Listen) -> None:
    with Client(listen()) as client:
        first = client.predict("a", images())
        name = client.snapshot("a")
        second = client.predict("a", images(seed=1))
        client.freeze("a")
        assert client.predict("a", images(seed=2)).mode == "frozen"
        assert client.stream("a")["frozen"]
        client.unfreeze("a")
        client.roll_back("a", name)
        assert client.predict("a", images(seed=1)).predictions == second.predictions
        client.reset("a")
        assert client.predict("a", images()).predictions == first.predictions
        client.adopt("b", client.export("a"))
        assert client.snapshots("a") == [name]
        assert [each["stream"] for each in client.streams()] == ["a", "b"]
        acts = [act["what"] for act in client.stream("a")["acts"]]
        assert acts == ["reset", "rollback", "unfreeze", "freeze", "snapshots"]
        client.delete("b")
        with pytest.raises(RefusedError, match="no stream 'b'") as caught:
            client.stream("b")
        assert caught.value.status == 404


def test_tokens_and_scopes(listen: Listen, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"cam predict {LONG}1\neye watch {LONG}2\nboss control {LONG}3\n")
    url = listen(tokens=path)
    cam, eye, boss, none = (Client(url, t) for t in (f"{LONG}1", f"{LONG}2", f"{LONG}3", None))
    cam.predict("a", images())
    assert eye.stream("a")["images"] == 2
    boss.reset("a")
    boss.stream("a")
    calls: list[tuple[Client, Callable[[Client], object], int]] = [
        (none, lambda c: c.predict("a", images()), 401),
        (none, lambda c: c.streams(), 401),
        (eye, lambda c: c.predict("a", images()), 403),
        (eye, lambda c: c.reset("a"), 403),
        (eye, lambda c: c.export("a"), 403),
        (cam, lambda c: c.streams(), 403),
        (cam, lambda c: c.delete("a"), 403),
        (boss, lambda c: c.predict("a", images()), 403),
    ]
    for client, call, status in calls:
        with pytest.raises(RefusedError, match="expected a token") as caught:
            call(client)
        assert caught.value.status == status
    open_paths = ("/healthz", "/readyz", "/", "/docs", "/openapi.json", "/dashboard.js")
    assert [httpx.get(url + each, timeout=60).status_code for each in open_paths] == [200] * 6
    shut = ("/metrics", "/v1/events", "/v1/server", "/v1/streams/a/snapshots")
    assert [httpx.get(url + each).status_code for each in shut] == [401] * 4
    for client in (cam, eye, boss, none):
        client.close()


def test_rates_and_a_full_queue_are_429(listen: Listen) -> None:
    with Client(listen(rate=1.0)) as client:
        client.streams()
        client.streams()
        with pytest.raises(RefusedError, match="too many requests") as caught:
            client.streams()
        assert (caught.value.status, caught.value.retry_after) == (429, 1.0)


def test_a_full_queue_is_429(listen: Listen) -> None:
    with Client(listen(max_queue=1)) as client:
        with pytest.raises(RefusedError, match="queue is full") as caught:
            client.predict("a", images(2))
        assert caught.value.status == 429
        assert caught.value.retry_after


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RuntimeError("in /secret/path.py"), 500),
        (DataError("cannot write /secret/path"), 503),
        (Closed(), 503),
    ],
)
def test_what_fails_inside_is_not_told(
    error: Exception, status: int, listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(Engine, "submit", fail)
    with Client(listen()) as client:
        with pytest.raises(RefusedError) as caught:
            client.predict("a", images())
        assert caught.value.status == status
        assert "secret" not in str(caught.value)
        assert client.streams() == []


def test_no_answer_in_time_is_said(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "submit", lambda *_: Future())
    with Client(listen(timeout=0.1)) as client, pytest.raises(RefusedError) as caught:
        client.predict("a", images())
    assert (caught.value.status, caught.value.retry_after) == (503, 1.0)


def test_the_time_for_an_answer_begins_with_the_request(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with the end of its decoding, for which others may make it wait."""

    def slowly(*given: Any) -> torch.Tensor:
        time.sleep(0.5)
        return tensor(images())

    monkeypatch.setattr(bodies, "from_array", slowly)
    url = f"{listen(timeout=0.3)}/v1/streams/a/predict"
    kind = {"Content-Type": "application/x-npy"}
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(httpx.post, url, content=b"x", headers=kind) for _ in range(4)]
        assert [each.result().status_code for each in asked] == [503] * 4


def test_every_answer_has_the_headers_and_an_id(listen: Listen) -> None:
    url = listen()
    for path in ("/", "/healthz", "/none", "/v1/streams/UPPER", "/v1/streams/a/predict"):
        answer = httpx.get(url + path, headers={"X-Request-ID": "my-id.7"})
        assert answer.headers["x-request-id"] == "my-id.7"
        for name, value in HEADERS.items():
            assert answer.headers[name] == value
        assert "server" not in answer.headers
    odd = httpx.get(f"{url}/healthz", headers={"X-Request-ID": "a b<script>"})
    assert len(odd.headers["x-request-id"]) == 32


def test_metrics_count(listen: Listen) -> None:
    url = listen()
    with Client(url) as client:
        client.predict("a", images(3))
        client.freeze("a")
        client.predict("a", images(2))
    text = httpx.get(f"{url}/metrics").text
    for line in (
        'tapr_images_total{mode="adapted"} 3.0',
        'tapr_images_total{mode="frozen"} 2.0',
        "tapr_batches_total 2.0",
        "tapr_refused_steps_total 0.0",
        'tapr_streams{health="ok"} 1.0',
        "tapr_request_seconds_count 2.0",
        'tapr_requests_total{route="/v1/streams/{stream}/predict",status="200"} 2.0',
    ):
        assert line in text, line
    assert float(text.partition("\ntapr_state_bytes ")[2].split()[0]) > 0


def test_events_show_the_streams(listen: Listen) -> None:
    url = listen()
    with Client(url) as client:
        client.predict("a", images(8))
        client.predict("b", images(8))
    with httpx.stream("GET", f"{url}/v1/events?stream=a") as answer:
        line = next(answer.iter_lines())
    content = json.loads(line.removeprefix("data: "))
    assert content["server"]["streams"] == 2
    assert {each["stream"] for each in content["streams"]} == {"a", "b"}
    assert content["detail"]["stream"] == "a"
    assert sum(each["images"] for each in content["detail"]["classes"]) == 8
    shown = Image.open(io.BytesIO(base64.b64decode(content["detail"]["pictures"][0]["png"])))
    assert shown.size == (9, 10)


def test_pictures_can_be_switched_off(listen: Listen) -> None:
    url = listen(pictures=False)
    with Client(url) as client:
        client.predict("a", images(8))
    with httpx.stream("GET", f"{url}/v1/events") as answer:
        content = json.loads(next(answer.iter_lines()).removeprefix("data: "))
    assert content["detail"]["pictures"] == []


def test_the_api_is_described(listen: Listen) -> None:
    page = httpx.get(f"{listen()}/openapi.json").json()
    predict = page["paths"]["/v1/streams/{stream}/predict"]["post"]
    assert set(predict["requestBody"]["content"]) == {
        "multipart/form-data",
        "application/x-npy",
        "application/json",
    }
    assert predict["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "Predicted"
    )


def test_answers_are_sent_without_delay() -> None:
    with bound("127.0.0.1", 0, None) as line:
        line.listen()
        with socket.create_connection(line.getsockname()), line.accept()[0] as accepted:
            assert accepted.proto == socket.IPPROTO_TCP  # by which asyncio sets TCP_NODELAY


def test_lines_of_the_log_are_json() -> None:
    record = logging.LogRecord("tapr", logging.INFO, "", 0, "request", (), None)
    record.__dict__ |= {"request": "r1", "seconds": 0.5, "status": 200}
    content = json.loads(Lines().format(record))
    assert (content["message"], content["request"], content["status"]) == ("request", "r1", 200)
