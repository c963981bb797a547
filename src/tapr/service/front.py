"""The middleware around every request: its id, its allowed origins, headers, the log."""

import json
import logging
import re
import sys
import time
import uuid
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tapr.service import security, tracing

log = logging.getLogger("tapr.service")
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FIELDS = ("request", "method", "route", "status", "seconds", "client", "stream", "images")
INTERNAL = "the server failed; its log says more under this request's id"


class Front:
    """An ASGI middleware: an application around another one."""

    def __init__(
        self,
        app: ASGIApp,
        requests: Counter[tuple[str, int]],
        *,
        open_to_all: bool,
    ) -> None:
        self.app, self._requests = app, requests
        self._open = open_to_all

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request = given if _ID.fullmatch(given) else uuid.uuid4().hex
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request"] = request

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ours = {**security.HEADERS, "X-Request-ID": request}
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"]] + [
                    (name.lower().encode(), value.encode())
                    for name, value in ours.items()
                    if name.lower().encode() not in own
                ]
            await send(message)

        try:
            refused = self._refusal(headers)
            app = self.app if refused is None else problem(*refused, request)
            await app(scope, receive, answer)
        except Exception:
            log.exception("a request failed", extra={"request": request})
            if not status:
                await problem(500, INTERNAL, request)(scope, receive, answer)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._requests[route, status] += 1
            client = state.get("caller") or (scope.get("client") or ("",))[0]
            values = (request, scope["method"], route, status, time.perf_counter() - began, client)
            more = (state.get("stream"), state.get("images"))
            fields = dict(zip(_FIELDS, (*values, *more), strict=True))
            log.info("request", extra={k: v for k, v in fields.items() if v is not None})

    def _refusal(self, headers: Headers) -> tuple[int, str] | None:
        why = security.refusal(headers, open_to_all=self._open)
        if why is not None:
            return 403, why
        if headers.get("content-encoding", "identity") != "identity":
            return 415, "expected a body that is not compressed"
        return None


def problem(
    status: int, sentence: str, request: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """The answer to a request that is refused."""
    return JSONResponse({"error": sentence, "request": request}, status, headers)


class Lines(logging.Formatter):
    """A JSON object for each line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        content: dict[str, Any] = {"time": when, "level": record.levelname.lower()}
        content["message"] = record.getMessage()
        for field in _FIELDS:
            if hasattr(record, field):
                content[field] = getattr(record, field)
        if "stream" not in content and tracing.STREAM.get() is not None:
            content["stream"] = tracing.STREAM.get()  # the guard's own messages do not name it
        if "seconds" in content:
            content["seconds"] = round(content["seconds"], 6)
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content)


def log_lines(level: int = logging.INFO) -> None:
    """Log as lines of JSON on stderr, uvicorn's messages included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    for name, least in (("tapr", level), ("uvicorn.error", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(least)
    logging.getLogger("uvicorn.access").propagate = False
