"""The queue, the batching window, and the one thread that owns the adapter.

Requests of one stream that come within `max_wait` of each other form one batch of up to `max_batch`
images. A request is never split over two batches. Of the streams whose batch is due, the one that
has waited longest is next. Between batches the owner thread does what operators ask for, and saves
the states that are due.
"""

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

import torch
from opentelemetry.context import Context, get_current
from torch import Tensor, nn

from tapr.adapters import Adapter
from tapr.errors import DataError, TaprError
from tapr.service import shown, tracing
from tapr.service.alarm import Alarm
from tapr.service.health import health
from tapr.service.journal import Journal, rows
from tapr.service.report import Facts, Mode, Report
from tapr.service.seen import Picture
from tapr.service.settings import Settings
from tapr.service.streams import Stream, Streams, UnknownError
from tapr.service.unadapted import Unadapted
from tapr.types import Health, Prediction

log = logging.getLogger("tapr.service")
JOURNAL = "predictions.sqlite"
TURN = 0.25  # the most seconds between two checks of what is due
MEMORY = 0.1  # the weight of the last batch in the mean time per image
T = TypeVar("T")


class Busy(Exception):  # noqa: N818
    """The queue is full; the caller may try again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__("the queue is full")
        self.seconds = seconds


class Closed(Exception):  # noqa: N818
    """The server is stopping."""


class Timings(NamedTuple):
    """Seconds that an answer took."""

    waiting: float  # for the rest of the batch, and for its turn
    predicting: float


class Answer(NamedTuple):
    """The answer to a request for predictions."""

    probabilities: Tensor  # [B, K]; not finite where the model's logits are not
    mode: Mode
    health: Health
    batch: int  # the number of the batch in its stream, from 1
    together: int  # images in the batch
    timings: Timings


class Waiting(NamedTuple):
    """A request in the queue."""

    name: str  # the stream's name
    images: Tensor  # [B, C, H, W]
    request: str  # the request's id
    came: float
    answer: "Future[Answer]"
    trace: Context  # the request's, for OpenTelemetry


class Engine:
    """Answers requests with one adapter on one thread; any thread may call `submit` and `ask`."""

    clock: Callable[[], float] = staticmethod(time.monotonic)
    facts: Facts  # set by whoever makes the engine

    def __init__(
        self, model: nn.Module, adapter: Adapter, settings: Settings, owner: str | None = None
    ) -> None:
        self.settings, self.adapter = settings, adapter
        self.unadapted = Unadapted(model)
        self.device = next((t.device for t in model.state_dict().values()), torch.device("cpu"))
        self.streams = Streams(adapter, settings, owner)
        self.journal = Journal(settings.folder / JOURNAL) if settings.journal else None
        self.alarm = Alarm(settings.alarm) if settings.alarm else None
        self.images: Counter[Mode] = Counter()
        self.batches = self.steps = self.refused = 0
        self.waiting = 0  # images in the queue
        self.pace = 0.0  # seconds per image, adapting
        self._queues: dict[str, deque[Waiting]] = {}
        self._asked: deque[tuple[Future[Any], Callable[[Streams], Any]]] = deque()
        self._news = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="owner", daemon=True)

    def start(self) -> None:
        """Begin to answer requests."""
        self._thread.start()

    @property
    def known(self) -> Collection[str]:
        """The names of all streams."""
        return self.streams.all.keys()

    @property
    def alive(self) -> bool:
        """Whether the owner thread is alive."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Answer the waiting requests, save every stream, and stop."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self.alive:
            self._thread.join()
        elif self._thread.ident is None:  # it was never started
            self.streams.close()
        for open_thing in (self.journal, self.alarm):
            if open_thing is not None:
                open_thing.close()

    def submit(self, name: str, images: Tensor, request: str) -> "Future[Answer]":
        """Have the stream adapt on images and predict them; raises `Busy` if the queue is full."""
        answer: Future[Answer] = Future()
        with self._news:
            if self._stopping:
                raise Closed
            if self.waiting + len(images) > self.settings.max_queue:
                raise Busy(max(1.0, self.waiting * self.pace))
            waiting = Waiting(name, images, request, self.clock(), answer, get_current())
            self._queues.setdefault(name, deque()).append(waiting)
            self.waiting += len(images)
            self._news.notify()
        return answer

    def ask(self, name: str, do: Callable[[Streams], T]) -> "Future[T]":
        """Have the owner thread do something with a stream, before the next batch."""
        done: Future[T] = Future()
        with self._news:
            if self._stopping:
                raise Closed
            self._asked.append((done, do))
            self._news.notify()
        return done

    def report(self) -> "Future[Report]":
        """The counters of the engine, and its streams."""
        streams, now = self.streams, self.streams.clock()
        rows = tuple(shown.row(stream, now) for stream in list(streams.all.values()))
        counts = (self.batches, self.steps, self.refused, streams.failures, self.waiting)
        return _done(Report(self.images.copy(), *counts, rows))

    def look(self, name: str, classes: Sequence[str]) -> "Future[dict[str, Any]]":
        """One stream in detail, with the names of its classes."""
        stream = self.streams.all.get(name)
        if stream is None:
            raise UnknownError(f"there is no stream {name!r}")
        return _done(shown.detail(stream, self.streams.clock(), classes))

    def _run(self) -> None:
        torch.set_grad_enabled(True)
        while self._turn():
            pass
        try:
            self.streams.close()
        except Exception:
            log.exception("the streams could not all be saved")

    def _turn(self) -> bool:
        """Do the next piece of work; False when all is done and the engine is to stop."""
        asked, batch = self._next()
        if asked is not None:
            _settle(asked[0], lambda: asked[1](self.streams))
        elif batch:
            self._answer(batch)
        elif self._stopping:
            return False
        try:
            self.streams.tidy()
        except Exception:  # the next turn tries again
            log.exception("a stream could not be saved or moved to disk")
        return True

    def _next(self) -> tuple[Any, list[Waiting]]:
        with self._news:
            if self._asked:
                return self._asked.popleft(), []
            due, soonest = self._due(self.clock())
            if due is None and not self._stopping:
                self._news.wait(min(soonest, TURN))
                if self._asked:
                    return self._asked.popleft(), []
                due, _ = self._due(self.clock())
            return None, self._take(due) if due is not None else []

    def _due(self, now: float) -> tuple[str | None, float]:
        """The stream whose batch is due, or else the seconds until the first one is."""
        ready: list[tuple[float, str]] = []
        soonest = TURN
        for name, queue in self._queues.items():
            left = queue[0].came + self.settings.max_wait - now
            full = sum(len(each.images) for each in queue) >= self.settings.max_batch
            if left <= 0 or full or self._stopping:
                ready.append((queue[0].came, name))
            soonest = min(soonest, left)
        return (min(ready)[1] if ready else None), max(soonest, 0.0)

    def _take(self, name: str) -> list[Waiting]:
        """The requests of a stream that make the next batch."""
        batch: list[Waiting] = []
        queue, images = self._queues[name], 0
        while queue and (not batch or images + len(queue[0].images) <= self.settings.max_batch):
            batch.append(queue.popleft())
            images += len(batch[-1].images)
        if not queue:
            del self._queues[name]
        self.waiting -= images
        return [each for each in batch if each.answer.set_running_or_notify_cancel()]

    def _answer(self, batch: list[Waiting]) -> None:
        """Answer the requests of one stream together, or one by one if that fails."""
        try:
            answers = self._predict(batch)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, TaprError) and not isinstance(error, DataError):
                for each in batch:
                    self._answer([each])
                return
            if not isinstance(error, TaprError):
                log.exception("a batch of the stream %s failed", batch[0].name)
            for each in batch:
                each.answer.set_exception(error)
            return
        for each, answer in zip(batch, answers, strict=True):
            each.answer.set_result(answer)

    def _predict(self, batch: Sequence[Waiting]) -> list[Answer]:
        name, now = batch[0].name, self.clock()
        waited = [now - each.came for each in batch]
        images = sum(len(each.images) for each in batch)
        span = tracing.batch([w.trace for w in batch], waited, stream=name, images=images)
        with tracing.stream(name), span:
            return self._predict_together(batch)

    def _predict_together(self, batch: Sequence[Waiting]) -> list[Answer]:
        began = self.clock()
        stream = self.streams.find(batch[0].name)
        images = torch.cat([each.images for each in batch]) if len(batch) > 1 else batch[0].images
        images = images.to(self.device)
        mode = self._mode(stream, batch[0].came, len(images))
        with tracing.span("predict", mode=mode):
            logits = self._logits(stream, images, mode)
        probabilities = logits.float().softmax(1)
        parts = torch.split(probabilities, [len(each.images) for each in batch])
        number = stream.about.batches + 1
        if self.journal is not None:
            pairs = zip(batch, parts, strict=True)
            with tracing.span("log"):
                self.journal.append(
                    [
                        row
                        for w, part in pairs
                        for row in rows(w.name, number, w.request, part, mode)
                    ]
                )
        self._remember(stream, images, probabilities, mode)
        took = self.clock() - began
        if mode == "adapted":
            each = took / len(images)
            self.pace = each if not self.pace else self.pace + MEMORY * (each - self.pace)
        return [
            Answer(part, mode, stream.health, number, len(images), Timings(began - w.came, took))
            for w, part in zip(batch, parts, strict=True)
        ]

    def _mode(self, stream: Stream, came: float, images: int) -> Mode:
        budget = self.settings.budget
        if budget is not None and self.clock() - came + images * self.pace > budget:
            self.pace *= 1 - MEMORY / 10  # so that one slow batch is forgotten
            return "late"
        return "frozen" if stream.about.frozen else "adapted"

    def _logits(self, stream: Stream, images: Tensor, mode: Mode) -> Tensor:
        if mode == "late":
            return self.unadapted.predict(images)
        self.streams.enter(stream)
        prediction: Prediction = self.adapter.predict(images)
        if mode == "frozen":
            self.streams.undo(stream)
            return prediction.logits
        self.streams.keep(stream)
        self.steps += prediction.steps
        self.refused += prediction.refused
        self._judge(stream, health(prediction, stream.health))
        return prediction.logits

    def _judge(self, stream: Stream, found: Health) -> None:
        before, stream.health = stream.health, found
        stream.seen.judged(before, found)
        if self.alarm is not None and before.verdict != found.verdict:
            self.alarm.send(
                {"stream": stream.name, "time": time.time(), "was": before.verdict}
                | {"verdict": found.verdict, "reason": found.reason, "action": found.action}
            )

    def _remember(self, stream: Stream, images: Tensor, probabilities: Tensor, mode: Mode) -> None:
        """Count the images, and keep what the dashboard shows."""
        stream.about.images += len(images)
        stream.about.batches += 1
        self.images[mode] += len(images)
        self.batches += 1
        confidence, classes = probabilities.max(1)
        mean = float(confidence.nan_to_num().mean())
        stream.seen.batch(classes.tolist(), mean, stream.health)
        sample = stream.seen.sample(len(images)) if mode != "late" else 0
        if sample:
            found = self.unadapted.compare(images[:sample])
            stream.seen.shifted(found.shift)
            if self.settings.pictures:
                before = int(found.logits[0].argmax())
                stream.seen.pictures.append(Picture.of(images[0], before, int(classes[0])))


def _done(value: T) -> "Future[T]":
    future: Future[T] = Future()
    future.set_result(value)
    return future


def _settle(done: "Future[Any]", do: Callable[[], Any]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        done.set_result(do())
    except Exception as error:
        if not isinstance(error, TaprError):
            log.exception("an operator's request failed")
        done.set_exception(error)
