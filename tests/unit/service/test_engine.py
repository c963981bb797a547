"""The queue, the batching window, and what the owner of the adapter does."""

import json
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapr import methods
from tapr.errors import DataError, InputError, TaprError
from tapr.service import engine as engines
from tapr.service.engine import Answer, Busy, Closed, Engine
from tapr.service.health import health
from tapr.service.unadapted import Unadapted
from tapr.types import Health, Prediction

Making = Callable[..., Engine]


def some(count: int, seed: int = 0) -> Tensor:
    noise = torch.rand(count, 3, 10, 9, generator=torch.Generator().manual_seed(seed))
    return noise.cumsum(3) / 9  # with some structure: mere noise is harm


def test_requests_of_a_stream_are_adapted_on_together(
    make_engine: Making, model: nn.Module
) -> None:
    engine = make_engine(start=False, max_batch=8, max_wait=0.05)
    waiting = [engine.submit("a", some(2, n), f"r{n}") for n in range(5)]
    other = engine.submit("b", some(3, 9), "r9")
    engine.start()
    answers = [each.result(30) for each in waiting]
    assert [answer.together for answer in answers] == [8, 8, 8, 8, 2]
    assert [answer.batch for answer in answers] == [1, 1, 1, 1, 2]
    assert other.result(30).together == 3
    alone = methods.adapt(model)
    together = alone(torch.cat([some(2, n) for n in range(4)])).float().softmax(1)
    assert torch.equal(torch.cat([answer.probabilities for answer in answers[:4]]), together)
    assert torch.equal(answers[4].probabilities, alone(some(2, 4)).float().softmax(1))


def test_a_request_is_never_split(make_engine: Making) -> None:
    engine = make_engine(max_batch=4)
    assert engine.submit("a", some(9), "r").result(30).together == 9


def test_a_lone_image_waits_for_others_no_longer_than_it_may(make_engine: Making) -> None:
    engine = make_engine(max_wait=0.2)
    engine.submit("a", some(1), "r").result(30)
    began = time.monotonic()
    engine.submit("a", some(1), "r").result(30)
    assert 0.19 < time.monotonic() - began < 5


def test_a_full_queue_says_when_to_come_back(make_engine: Making) -> None:
    engine = make_engine(start=False, max_queue=4)
    engine.submit("a", some(3), "r")
    with pytest.raises(Busy) as caught:
        engine.submit("b", some(2), "r")
    assert caught.value.seconds >= 1
    engine.submit("b", some(1), "r")


def test_who_no_longer_waits_is_not_predicted(make_engine: Making) -> None:
    engine = make_engine(start=False)
    gone, there = engine.submit("a", some(1), "r"), engine.submit("a", some(2), "r")
    assert gone.cancel()
    engine.start()
    assert there.result(30).together == 2


def test_late_requests_are_predicted_by_the_unadapted_model(
    make_engine: Making, model: nn.Module
) -> None:
    engine = make_engine(start=False, budget=0.05)
    late = engine.submit("a", some(4), "r")
    time.sleep(0.1)
    engine.start()
    answer = late.result(30)
    assert answer.mode == "late"
    with torch.no_grad():
        assert torch.equal(answer.probabilities, model.eval()(some(4)).softmax(1))
    assert engine.streams.get("a").moment is engine.streams.source
    engine.settings = replace(engine.settings, budget=60.0)
    assert engine.submit("a", some(4), "r").result(30).mode == "adapted"


def test_a_frozen_stream_answers_the_same_to_the_same(
    make_engine: Making, model: nn.Module
) -> None:
    engine = make_engine("pest")
    engine.submit("a", some(4), "r").result(30)
    engine.ask("a", lambda streams: streams.freeze("a", True)).result(30)
    first, second = (engine.submit("a", some(4, 1), "r").result(30) for _ in range(2))
    assert first.mode == second.mode == "frozen"
    assert torch.equal(first.probabilities, second.probabilities)
    engine.ask("a", lambda streams: streams.freeze("a", False)).result(30)
    alone = methods.adapt(model, "pest")
    alone(some(4))
    answer = engine.submit("a", some(4, 2), "r").result(30)
    assert torch.equal(answer.probabilities, alone(some(4, 2)).float().softmax(1))


def test_predictions_are_logged_before_they_are_answered(
    make_engine: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(journal=True)
    seen: list[int] = []
    path = tmp_path / "state" / engines.JOURNAL
    answering = Future.set_result

    def look(answer: "Future[Answer]", result: Answer) -> None:
        with sqlite3.connect(path) as file:
            seen.append(file.execute("SELECT count(*) FROM predictions").fetchone()[0])
        answering(answer, result)

    monkeypatch.setattr(Future, "set_result", look)
    answer = engine.submit("a", some(3), "r1").result(30)
    assert seen == [3]
    with sqlite3.connect(path) as file:
        rows = file.execute(
            "SELECT stream, batch, request, image, class, probability, mode FROM predictions"
        ).fetchall()
    values, classes = answer.probabilities.max(1)
    assert rows == [
        ("a", 1, "r1", n, int(classes[n]), float(values[n]), "adapted") for n in range(3)
    ]


def test_what_cannot_be_logged_is_not_answered(
    make_engine: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(journal=True)
    assert engine.journal is not None

    def full(rows: object) -> None:
        raise DataError("the disk is full")

    monkeypatch.setattr(engine.journal, "append", full)
    with pytest.raises(DataError):
        engine.submit("a", some(3), "r1").result(30)


def test_one_bad_request_harms_no_other(
    make_engine: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(start=False)
    predict = engine.adapter.predict

    def picky(images: Tensor) -> Prediction:
        if (images == 0).all(3).any():
            raise InputError("expected no black rows")
        return predict(images)

    monkeypatch.setattr(engine.adapter, "predict", picky)
    good, bad = engine.submit("a", some(2), "r"), engine.submit("a", torch.zeros(1, 3, 10, 9), "r")
    engine.start()
    assert good.result(30).together == 2
    with pytest.raises(InputError, match="black rows"):
        bad.result(30)


def test_an_unexpected_failure_ends_neither_the_owner_nor_the_state(
    make_engine: Making, monkeypatch: pytest.MonkeyPatch, model: nn.Module
) -> None:
    engine = make_engine("tent")
    engine.submit("a", some(4), "r").result(30)

    def fail(images: Tensor) -> Prediction:
        raise MemoryError

    monkeypatch.setattr(engine.adapter, "adapt", fail)
    with pytest.raises(MemoryError):
        engine.submit("a", some(4, 1), "r").result(30)
    monkeypatch.undo()
    alone = methods.adapt(model, "tent")
    alone(some(4))
    answer = engine.submit("a", some(4, 2), "r").result(30)
    assert torch.equal(answer.probabilities, alone(some(4, 2)).float().softmax(1))
    assert engine.alive


def test_closing_answers_what_waits_and_saves(make_engine: Making) -> None:
    engine = make_engine(max_wait=60.0)
    waiting = engine.submit("a", some(2), "r")
    engine.close()
    assert waiting.result(0).together == 2
    assert engine.streams.get("a").saved
    with pytest.raises(Closed):
        engine.submit("a", some(2), "r")
    with pytest.raises(Closed):
        engine.ask("a", lambda streams: None)


def test_states_are_saved_under_load(make_engine: Making, tmp_path: Path) -> None:
    engine = make_engine(save_every=0.0)
    engine.submit("a", some(2), "r").result(30)
    path = tmp_path / "state" / "streams" / "a" / "state.safetensors"
    end = time.monotonic() + 10
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert path.exists()


def test_many_threads_get_their_own_answers(make_engine: Making) -> None:
    engine = make_engine("source", max_wait=0.01)
    model = engine.unadapted.model
    wrong: list[int] = []

    def ask(number: int) -> None:
        images = some(1 + number % 3, number)
        answer = engine.submit(f"s{number % 4}", images, str(number)).result(60)
        with torch.no_grad():
            if not torch.allclose(answer.probabilities, model(images).softmax(1), atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert sum(engine.images.values()) == sum(1 + n % 3 for n in range(40))


def test_what_is_shown_of_a_stream(make_engine: Making, model: nn.Module) -> None:
    engine = make_engine()
    answer = engine.submit("a", some(8), "r").result(30)
    stream = engine.streams.get("a")
    with torch.no_grad():
        before = model.eval()(some(8)).argmax(1)
    classes = answer.probabilities.argmax(1)
    assert stream.health.images == 8
    assert stream.health.agreement == pytest.approx((before == classes).float().mean().item())
    assert len(stream.seen.shift) == 1
    assert sum(stream.seen.counts().values()) == 8
    shown = stream.seen.pictures[0]
    assert (shown.before, shown.after) == (int(before[0]), int(classes[0]))
    engine.submit("a", some(8), "r").result(30)
    assert len(stream.seen.pictures) == 1  # of a twentieth of the images
    engine.submit("b", some(8, 1), "r").result(30)
    other = engine.streams.get("b").health
    assert other.images == 8
    assert stream.health.images == 16


def test_the_shift_is_nothing_on_images_like_the_stored_statistics(model: nn.Module) -> None:
    layer = next(m for m in model.modules() if isinstance(m, nn.BatchNorm2d))
    images = some(64)
    inside: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda _, given: inside.append(given[0]))
    unadapted = Unadapted(model)
    unadapted.predict(images)
    hook.remove()
    assert layer.running_mean is not None
    assert layer.running_var is not None
    layer.running_mean.copy_(inside[0].mean((0, 2, 3)))
    layer.running_var.copy_(inside[0].var((0, 2, 3), correction=0))
    assert unadapted.compare(images).shift == pytest.approx([0.0], abs=1e-6)
    layer.running_mean.add_(2 * layer.running_var.sqrt())
    assert unadapted.compare(images).shift == pytest.approx([2.0], rel=1e-3)


def test_health_is_the_guards_and_names_what_it_cannot_see() -> None:
    good, told = Prediction(torch.zeros(2, 5)), Health("watch", "so it is", images=9)
    assert health(good, told) == told
    assert health(good._replace(health=Health()), told) == Health()
    refused = health(good._replace(refused=1), Health())
    assert (refused.verdict, "refused 1 steps" in refused.reason) == ("watch", True)
    bad = Prediction(torch.tensor([[0.0, float("nan")], [0.0, 0.0]]))
    assert health(bad, told).verdict == "harm"
    assert "1 of 2 images" in health(bad, told).reason


def test_what_the_guard_does_is_noted(make_engine: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    acted = Health("harm", "it is worse", "unlearnt", images=9)
    monkeypatch.setattr(engines, "health", lambda *_: acted)
    for _ in range(2):
        engine.submit("a", some(2), "r").result(30)
    acts = [(act["what"], act["why"]) for act in engine.streams.get("a").seen.acts]
    assert acts == [("health ok -> harm", "it is worse"), ("guard: unlearnt", "it is worse")]


def test_a_change_of_health_is_told_to_the_webhook(
    make_engine: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    engine = make_engine(alarm=f"http://127.0.0.1:{server.server_port}/")
    engine.submit("a", some(2), "r").result(30)
    monkeypatch.setattr(engines, "health", lambda *_: Health("harm", "for a test"))
    engine.submit("a", some(2), "r").result(30)
    engine.submit("a", some(2), "r").result(30)
    engine.close()
    server.shutdown()
    server.server_close()
    thread.join()
    assert [(m["stream"], m["was"], m["verdict"], m["reason"]) for m in told] == [
        ("a", "ok", "harm", "for a test")
    ]


def test_an_alarm_needs_a_url(make_engine: Making) -> None:
    with pytest.raises(TaprError, match="begin with http"):
        make_engine(alarm="file:///etc/passwd")
