"""The endpoints of the API."""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from tapr.errors import TaprError
from tapr.service import shown
from tapr.service.answers import Control, Predicted, Problem, predicted
from tapr.service.cluster import Gone
from tapr.service.engine import Busy, Closed
from tapr.service.reading import Reader, Refused, late, left
from tapr.service.security import Rates, Tokens
from tapr.service.server import Service
from tapr.service.shelf import NAMES
from tapr.service.streams import Streams

EVERY = 1.0  # seconds between events
T = TypeVar("T")
NAME = f"^{NAMES.pattern}$"

Name = Annotated[str, Path(alias="stream", pattern=NAME, description="The stream's name.")]
Top = Annotated[int, Query(ge=1, le=10_000, description="The number of classes to return.")]
BODY = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "properties": {
                "files": {"type": "array", "items": {"type": "string", "format": "binary"}}
            },
        }
    },
    "application/x-npy": {"schema": {"type": "string", "format": "binary"}},
    "application/json": {
        "schema": {
            "type": "object",
            "properties": {"images": {"type": "array", "items": {"type": "string"}}},
        }
    },
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem} for status in (401, 403, 404, 413, 415, 422, 429, 503)
}


class Api:
    """The endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self.service, self.engine, self.settings = service, service.engine, service.settings
        self.tokens = Tokens(self.settings.tokens)
        self.rates = Rates(self.settings.rate)
        self.reader = Reader(self.settings, service.preprocessing)

    def add(self, app: FastAPI) -> None:
        """Add the endpoints to an application."""
        predict, watch, control = (
            [Depends(self.needs(scope))] for scope in ("predict", "watch", "control")
        )
        app.add_api_route("/healthz", self.healthz, tags=["server"])
        app.add_api_route("/readyz", self.readyz, tags=["server"])
        app.add_api_route("/metrics", self.metrics, dependencies=watch, tags=["server"])
        app.add_api_route("/v1/server", self.server, dependencies=watch, tags=["server"])
        app.add_api_route("/v1/events", self.events, dependencies=watch, tags=["server"])
        one = "/v1/streams/{stream}"
        app.add_api_route(
            f"{one}/predict",
            self.predict,
            methods=["POST"],
            dependencies=predict,
            tags=["predict"],
            responses={200: {"model": Predicted}, **PROBLEMS},
            openapi_extra={"requestBody": {"required": True, "content": BODY}},
        )
        for method, path, do, scope in (
            ("GET", "/v1/streams", self.streams, watch),
            ("GET", one, self.stream, watch),
            ("GET", f"{one}/snapshots", self.snapshots, watch),
            ("GET", f"{one}/state", self.export, control),
            ("PUT", f"{one}/state", self.adopt, control),
            ("DELETE", one, self.delete, control),
            ("POST", f"{one}/reset", self.reset, control),
            ("POST", f"{one}/freeze", self.freeze, control),
            ("POST", f"{one}/unfreeze", self.unfreeze, control),
            ("POST", f"{one}/snapshots", self.snapshot, control),
            ("POST", f"{one}/rollback", self.roll_back, control),
        ):
            answers: dict[int | str, dict[str, Any]] = {200: {"model": Control}, **PROBLEMS}
            if method == "GET":
                answers = PROBLEMS
            app.add_api_route(
                path, do, methods=[method], dependencies=scope, tags=["streams"], responses=answers
            )

    def needs(self, scope: str) -> Callable[[Request], Awaitable[None]]:
        """A FastAPI dependency that checks the caller's token and scope, and limits its rate."""

        async def check(request: Request) -> None:
            address = request.client.host if request.client else ""
            caller = self.tokens.caller(request.headers.get("authorization"), address)
            if caller is None:
                sentence = "expected a token: Authorization: Bearer TOKEN"
                raise Refused(401, sentence, WWW_Authenticate="Bearer")
            request.state.caller = caller.name
            if scope not in caller.scopes:
                raise Refused(403, f"expected a token with the scope {scope!r}")
            wait = self.rates.wait(caller.name)
            if wait:
                raise Refused(429, "too many requests", Retry_After=str(wait))

        return check

    # Predicting.

    async def predict(self, request: Request, name: Name, top: Top = 5) -> JSONResponse:
        """Adapt the stream on the images and predict them."""
        began = time.perf_counter()
        request.state.stream = name
        end = time.monotonic() + self.settings.timeout  # for body, decoding and answer together
        images = await self.reader.images(request, end)
        request.state.images = len(images)
        decoded = time.perf_counter()
        try:
            waiting = self.engine.submit(name, images, request.state.request)
            answer = await self._answer(waiting, end)
        except Busy as busy:
            after = str(math.ceil(busy.seconds))
            raise Refused(429, "the queue is full", Retry_After=after) from None
        took = time.perf_counter() - began
        self.service.latency(took)
        content = predicted(
            answer,
            name,
            request.state.request,
            self.service.names,
            top,
            {"decoding": decoded - began, "total": took},
        )
        return JSONResponse(content)

    # Streams.

    async def streams(self) -> JSONResponse:
        """All streams."""
        report = await self._answer(self.engine.report())
        return JSONResponse({"streams": sorted(report.streams, key=lambda row: row["stream"])})

    async def stream(self, name: Name) -> JSONResponse:
        """One stream in detail."""
        return JSONResponse(await self._look(name))

    async def reset(self, request: Request, name: Name) -> JSONResponse:
        """Return the stream to the source model."""
        return await self._do(request, name, partial(Streams.reset, name=name))

    async def freeze(self, request: Request, name: Name) -> JSONResponse:
        """Let the stream predict without changing its state."""
        return await self._do(request, name, partial(Streams.freeze, name=name, frozen=True))

    async def unfreeze(self, request: Request, name: Name) -> JSONResponse:
        """Let the stream adapt again."""
        return await self._do(request, name, partial(Streams.freeze, name=name, frozen=False))

    async def snapshots(self, name: Name) -> JSONResponse:
        """The stream's snapshots, the oldest first."""
        found = await self._answer(self.engine.ask(name, partial(Streams.snapshots, name=name)))
        return JSONResponse({"snapshots": [each._asdict() for each in found]})

    async def snapshot(self, request: Request, name: Name) -> JSONResponse:
        """Keep the stream's state as a snapshot."""
        return await self._do(request, name, partial(Streams.snapshot, name=name))

    async def roll_back(self, request: Request, name: Name) -> JSONResponse:
        """Return the stream to a snapshot: `{"snapshot": NAME}`."""
        body = await self.reader.body(request, 1000)
        try:
            snapshot = json.loads(body)["snapshot"]
        except (ValueError, KeyError, TypeError, RecursionError):
            snapshot = None
        if not isinstance(snapshot, str):
            raise Refused(422, 'expected {"snapshot": NAME} with the name of a snapshot')
        return await self._do(
            request, name, partial(Streams.roll_back, name=name, snapshot=snapshot)
        )

    async def export(self, name: Name) -> Response:
        """The stream's state, as a file that `tapr.load` and `PUT` take."""
        state = await self._answer(self.engine.ask(name, partial(Streams.export, name=name)))
        return Response(state, media_type="application/octet-stream")

    async def adopt(self, request: Request, name: Name) -> JSONResponse:
        """Give the stream a state that was exported; a new stream is made if there is none."""
        state = await self.reader.body(
            request, max(self.settings.max_body, self.engine.facts.most_state)
        )
        return await self._do(request, name, partial(Streams.adopt, name=name, state=state))

    async def delete(self, request: Request, name: Name) -> JSONResponse:
        """Forget the stream, with its snapshots."""
        return await self._do(request, name, partial(Streams.delete, name=name))

    async def _do(
        self, request: Request, name: str, do: Callable[[Streams], str | None]
    ) -> JSONResponse:
        """Have the owner thread do something to a stream, and note who asked for it."""
        request.state.stream = name
        what = request.url.path.rpartition("/")[2] if request.method == "POST" else request.method
        why = f"requested by {request.state.caller}"
        noted = partial(_noted, name=name, do=do, what=what, why=why)
        result = await self._answer(self.engine.ask(name, noted))
        return JSONResponse({"stream": name, "done": what, "result": result})

    async def _overview(self, stream: str | None) -> dict[str, Any]:
        """The content of the dashboard, with this stream in detail, or the one used last."""
        report = await self._answer(self.engine.report())
        rows = shown.recent(report)
        if all(row["stream"] != stream for row in report.streams):
            stream = rows[0]["stream"] if rows else None
        detail = None if stream is None else await self._look(stream)
        return shown.overview(self.service, report, rows, detail)

    async def _look(self, name: str) -> dict[str, Any]:
        return await self._answer(self.engine.look(name, self.service.names))

    async def _answer(self, future: "Future[T]", end: float | None = None) -> T:
        """The engine's answer, or a refusal when it does not come in time."""
        seconds = self.settings.timeout if end is None else left(end)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            raise late() from None

    # The server.

    async def healthz(self) -> Response:
        """Report that the server is alive."""
        return _yes_or_no(self.engine.alive)

    async def readyz(self) -> Response:
        """Report whether the server takes requests."""
        return _yes_or_no(self.engine.alive and not self.service.stopping)

    async def metrics(self) -> Response:
        """The metrics for Prometheus."""
        report = await self._answer(self.engine.report())
        return Response(self.service.metrics.text(report), media_type="text/plain; version=0.0.4")

    async def server(self) -> JSONResponse:
        """The model and method that are served, and the limits."""
        return JSONResponse(self.service.about(await self._answer(self.engine.report())))

    async def events(
        self, stream: Annotated[str | None, Query(pattern=NAME)] = None
    ) -> StreamingResponse:
        """The content of the dashboard, every second, as server-sent events."""

        async def told() -> AsyncIterator[str]:
            while not self.service.stopping:
                try:
                    content = await self._overview(stream)
                except (Closed, Gone, Refused, TaprError):
                    return  # the page reconnects
                yield f"data: {json.dumps(content)}\n\n"
                await asyncio.sleep(EVERY)

        return StreamingResponse(told(), media_type="text/event-stream")


def _noted(
    streams: Streams, name: str, do: Callable[[Streams], str | None], what: str, why: str
) -> str | None:
    """Do something to a stream, and note it; this may run in another process."""
    result = do(streams)
    if name in streams.all:
        streams.all[name].seen.act(what, why)
    return result


def _yes_or_no(yes: bool) -> Response:
    return JSONResponse({"ok": yes}, 200 if yes else 503)
