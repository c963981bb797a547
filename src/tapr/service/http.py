"""The FastAPI application: endpoints, pages, and the answers to errors."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.resources import files

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from tapr.errors import DataError, StateError, TaprError, expectation
from tapr.service import tracing
from tapr.service.api import Api
from tapr.service.cluster import Gone
from tapr.service.engine import Closed
from tapr.service.front import INTERNAL, problem
from tapr.service.reading import Refused
from tapr.service.server import Service
from tapr.service.streams import FullError, UnknownError

PAGES = {"/": "dashboard.html", "/docs": "api.html"}
ASSETS = {"/page.css": "text/css", "/dashboard.js": "text/javascript", "/api.js": "text/javascript"}


def make(service: Service) -> FastAPI:
    """The application of a service."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await to_thread.run_sync(service.close)

    app = FastAPI(
        title="tapr serve",
        version=service.version,
        description="A model that adapts to each stream of images while it predicts them.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=TelemetryConfig(
            auto_configure=tracing.exporting(), metrics=False, logs=False, operation_spans=False
        ),
    )
    _refusals(app)
    _pages(app)
    Api(service).add(app)
    return app


def _pages(app: FastAPI) -> None:
    folder = files("tapr.service").joinpath("pages")
    for path, name in PAGES.items():
        page = folder.joinpath(name).read_text("utf-8")
        answer = partial(HTMLResponse, page)
        app.add_api_route(path, _sent(answer), include_in_schema=False)
    for path, kind in ASSETS.items():
        text = folder.joinpath(path.removeprefix("/")).read_text("utf-8")
        app.add_api_route(
            path, _sent(partial(Response, text, media_type=kind)), include_in_schema=False
        )


def _sent(make: Callable[[], Response]) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return make()

    return send


def _refusals(app: FastAPI) -> None:
    """Answer every error with a status and a sentence that names no path of the server."""

    def say(request: Request, status: int, sentence: str, **headers: str) -> JSONResponse:
        return problem(status, sentence, request.state.request, headers)

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> JSONResponse:
        return say(request, error.status, str(error), **error.headers)

    @app.exception_handler(Closed)
    async def closed(request: Request, error: Closed) -> JSONResponse:
        return say(request, 503, "the server is stopping", **{"Retry-After": "5"})

    @app.exception_handler(Gone)
    async def gone(request: Request, error: Gone) -> JSONResponse:
        return say(request, 503, "no replica answers", **{"Retry-After": "5"})

    @app.exception_handler(TaprError)
    async def wrong(request: Request, error: TaprError) -> JSONResponse:
        if isinstance(error, DataError):  # its sentence may name a path
            sentence = "the server cannot write its files; its log says why"
            return say(request, 503, sentence, **{"Retry-After": "5"})
        status = {UnknownError: 404, FullError: 403, StateError: 409}.get(type(error), 422)
        if request.method == "PUT" and status == 409:
            status = 422
        return say(request, status, str(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        if where == "stream":
            sentence = (
                "expected a stream's name of 1 to 64 lower-case letters, digits, '.', '_' and '-',"
                " beginning with a letter or digit"
            )
        else:
            sentence = f"{where}: {expectation(first)}"
        return say(request, 422, sentence[:500])

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> JSONResponse:
        return say(request, error.status_code, str(error.detail), **dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def internal(request: Request, error: Exception) -> JSONResponse:
        return say(request, 500, INTERNAL)
