"""Several engines behind one server: each stream belongs to one replica at a time.

The server keeps the table of which replica has which stream. A stream stays where it is as long as
its replica answers, so that no state is ever adapted in two places. When a replica is gone, the
next image of each of its streams goes to another replica, which takes over the stream with the
state that is on disk (`shelf`). A request that was under way is sent again, since it has no answer
yet.

The server itself writes the record of predictions, before it answers. This module does not use Ray:
`call(number, what, *arguments)` reaches a replica, and raises `Gone` when there is none.
"""

import asyncio
import logging
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol, TypeVar, cast

from torch import Tensor

from tapr.service.engine import Answer, Closed, Engine
from tapr.service.journal import rows
from tapr.service.plan import Plan
from tapr.service.report import Report, counted
from tapr.service.shelf import check_name
from tapr.service.streams import FullError, Streams, UnknownError

log = logging.getLogger("tapr.service")
T = TypeVar("T")
EVERY = 1.0  # seconds between two pings of a replica
PATIENCE = 10.0  # seconds that a replica has to answer a ping, before its streams move
TRIES = 4  # the most replicas that a request is sent to, one after the other
STOPPING = 60.0  # seconds that the replicas have to save their streams


class Gone(Exception):  # noqa: N818
    """A replica does not answer."""


class Call(Protocol):
    """A function that calls a method of the replica with this number."""

    def __call__(self, number: int, what: str, *arguments: Any) -> Coroutine[Any, Any, Any]: ...


class Replica:
    """One of the engines, in its own process, with the methods that `Cluster` calls."""

    def __init__(self, plan: Plan) -> None:
        self.id = uuid.uuid4().hex
        self._engine: Engine = plan.engine(owner=self.id)
        self._engine.start()

    async def ping(self) -> bool:
        """Whether the engine is alive."""
        return self._engine.alive

    async def predict(self, name: str, images: Tensor, request: str) -> Answer:
        """Have a stream adapt on images and predict them."""
        answer = await asyncio.wrap_future(self._engine.submit(name, images, request))
        return answer._replace(probabilities=answer.probabilities.cpu())

    async def ask(self, name: str, do: Callable[[Streams], Any]) -> tuple[Any, bool]:
        """Have the engine do something with a stream; also return whether the stream is left."""
        result = await asyncio.wrap_future(self._engine.ask(name, do))
        return result, name in self._engine.streams.all

    async def look(self, name: str, classes: Sequence[str]) -> dict[str, Any]:
        """One stream in detail."""
        if name not in self._engine.streams.all:
            await self.ask(name, partial(Streams.get, name=name))
        return await asyncio.wrap_future(self._engine.look(name, classes))

    async def report(self) -> tuple[str, Report]:
        """The name of this process, and its counters and streams."""
        return self.id, await asyncio.wrap_future(self._engine.report())

    async def close(self) -> None:
        """Answer the waiting requests, and save every stream."""
        await asyncio.to_thread(self._engine.close)


class Cluster:
    """Several replicas behind the interface of `Engine`.

    `here` is an engine that is never started: it holds the folder and the record of predictions,
    and knows the streams that are on disk.
    """

    def __init__(
        self, here: Engine, call: Call, replicas: int, stop: Callable[[], None] = lambda: None
    ) -> None:
        self.facts, self._here, self._call, self._stop = here.facts, here, call, stop
        self._rows = {row["stream"]: row for row in here.report().result().streams}  # as last seen
        self._places: dict[str, int | None] = dict.fromkeys(self._rows)  # which replica has it
        self._down = [asyncio.Event() for _ in range(replicas)]
        self._told: dict[str, Report] = {}  # the last report of each process, also of ended ones
        self._stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._watchers: list[Future[None]] = []

    def start(self) -> None:
        """Begin to answer requests and to watch the replicas."""
        self._thread.start()
        self._watchers = [self._run(self._watch(number)) for number in range(len(self._down))]

    @property
    def known(self) -> Collection[str]:
        """The names of all streams."""
        return self._places.keys()

    @property
    def alive(self) -> bool:
        """Whether any replica answers."""
        return not all(down.is_set() for down in self._down)

    def submit(self, name: str, images: Tensor, request: str) -> "Future[Answer]":
        """Have the stream's replica adapt on images and predict them."""
        most = self._here.settings.max_streams
        check_name(name)
        if name not in self._places and len(self._places) >= most:
            raise FullError(f"expected at most {most} streams, got one more")
        return self._run(self._predict(name, images, request))

    def ask(self, name: str, do: Callable[[Streams], T]) -> "Future[T]":
        """Have the stream's replica do something with the stream."""
        return self._run(self._have_done(name, do))

    def look(self, name: str, classes: Sequence[str]) -> "Future[dict[str, Any]]":
        """One stream in detail, with the names of its classes."""
        return self._run(self._reach(name, "look", classes))

    def report(self) -> "Future[Report]":
        """The counters of all replicas together, and all streams."""
        return self._run(self._report())

    def close(self) -> None:
        """Have the replicas save every stream, and stop."""
        if self._thread.is_alive():
            for watcher in self._watchers:
                watcher.cancel()
            closing = [self._run(self._close(number)) for number in range(len(self._down))]
            self._stopping = True
            for each in closing:
                each.result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._stopping = True
        self._loop.close()
        self._stop()
        self._here.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        if self._stopping:
            work.close()
            raise Closed
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _predict(self, name: str, images: Tensor, request: str) -> Answer:
        answer: Answer = await self._reach(name, "predict", images, request)
        if self._here.journal is not None:
            said = rows(name, answer.batch, request, answer.probabilities, answer.mode)
            self._here.journal.append(list(said))
        return answer

    async def _have_done(self, name: str, do: Callable[[Streams], T]) -> T:
        result, there = await self._reach(name, "ask", do)
        if not there:
            self._forget(name)
        return cast(T, result)

    async def _reach(self, name: str, what: str, *arguments: Any) -> Any:
        """Call the stream's replica, or another one if that is gone."""
        for left in reversed(range(TRIES)):
            number = self._place(name)
            try:
                return await self._call_or_lose(number, what, name, *arguments)
            except Gone:
                self._down[number].set()
                if not left:
                    raise
            except UnknownError:
                self._forget(name)
                raise
        raise AssertionError("the last try returns or raises")

    def _place(self, name: str) -> int:
        """The replica of the stream; a stream without one goes to the replica with the fewest."""
        place = self._places.get(name)
        if place is not None and not self._down[place].is_set():
            return place
        up = [number for number, down in enumerate(self._down) if not down.is_set()]
        if not up:
            raise Gone
        held = Counter(self._places.values())
        self._places[name] = number = min(up, key=lambda each: held[each])
        if place is not None:
            log.warning("the stream %s moves from replica %s to %s", name, place, number)
        return number

    def _forget(self, name: str) -> None:
        self._places.pop(name, None)
        self._rows.pop(name, None)

    async def _call_or_lose(self, number: int, what: str, *arguments: Any) -> Any:
        """Call a replica; raise `Gone` as soon as we know that it is gone."""
        call = asyncio.ensure_future(self._call(number, what, *arguments))
        down = asyncio.ensure_future(self._down[number].wait())
        try:
            await asyncio.wait({call, down}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise Gone
            return call.result()
        finally:
            down.cancel()
            call.cancel()

    async def _watch(self, number: int) -> None:
        """Ping a replica again and again, and note whether it answers."""
        down = self._down[number]
        while True:
            try:
                alive = await asyncio.wait_for(self._call(number, "ping"), PATIENCE)
            except (Gone, TimeoutError):
                alive = False
            if alive and down.is_set():
                log.warning("replica %s answers again", number)
                down.clear()
            elif not alive and not down.is_set():
                log.warning("replica %s does not answer", number)
                down.set()
            await asyncio.sleep(EVERY)

    async def _report(self) -> Report:
        numbers = [number for number, down in enumerate(self._down) if not down.is_set()]
        calls = (self._call_or_lose(number, "report") for number in numbers)
        found = await asyncio.gather(*calls, return_exceptions=True)
        for number, told in zip(numbers, found, strict=True):
            if isinstance(told, BaseException):
                continue
            process, report = told
            self._told[process] = report._replace(streams=())
            for row in report.streams:
                if self._places.get(row["stream"]) == number:
                    self._rows[row["stream"]] = {**row, "replica": number}
        waiting = sum(t[1].waiting for t in found if not isinstance(t, BaseException))
        streams = tuple(self._rows[name] | self._where(name) for name in sorted(self._rows))
        return counted(self._told.values())._replace(waiting=waiting, streams=streams)

    def _where(self, name: str) -> dict[str, Any]:
        place = self._places.get(name)
        gone = place is None or self._down[place].is_set()
        return {"replica": None, "in_memory": False} if gone else {}

    async def _close(self, number: int) -> None:
        if self._down[number].is_set():  # its streams are on disk, or have moved
            return
        try:
            await asyncio.wait_for(self._call(number, "close"), STOPPING)
        except (Gone, TimeoutError):
            log.error("replica %s does not answer: it could not save its streams", number)
