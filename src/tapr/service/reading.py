"""Reads the bodies of requests, within limits of size and time."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from functools import partial

from anyio import CapacityLimiter, to_thread
from fastapi import Request
from starlette.formparsers import MultiPartException, MultiPartParser
from torch import Tensor

from tapr.datasets.preprocessing import Preprocessing
from tapr.service import images as bodies
from tapr.service.settings import Settings

DECODERS = 2  # the most bodies that are decoded at a time


class Refused(Exception):  # noqa: N818
    """A request is refused with a status and a sentence."""

    def __init__(self, status: int, sentence: str, **headers: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def late() -> Refused:
    """The refusal of a request that could not be answered in time."""
    return Refused(503, "no answer in time", Retry_After="1")


def left(end: float) -> float:
    """The seconds until a moment; a small positive number if it has passed."""
    return max(end - time.monotonic(), 0.001)


class Reader:
    """Reads the bodies of requests."""

    def __init__(self, settings: Settings, preprocessing: Preprocessing) -> None:
        self.settings, self._preprocessing = settings, preprocessing
        self._decoders = CapacityLimiter(DECODERS)
        self._limits = bodies.Limits(settings.max_images, settings.max_pixels)

    async def images(self, request: Request, end: float) -> Tensor:
        """The images of a request, [B, C, H, W] in [0, 1], if they arrive before `end`."""
        kind, _, _ = request.headers.get("content-type", "").partition(";")
        kind = kind.strip().lower()
        read: Callable[[], Tensor]
        prepared = self._preprocessing
        if kind == "multipart/form-data":
            found = await self._files(request, end)
            read = partial(bodies.from_files, found, self._limits, prepared)
        elif kind.startswith("image/"):
            body = await self.body(request, end=end)
            read = partial(bodies.from_files, [body], self._limits, prepared)
        elif kind in ("application/octet-stream", "application/x-npy"):
            body = await self.body(request, end=end)
            read = partial(bodies.from_array, body, self._limits, prepared)
        elif kind == "application/json":
            body = await self.body(request, end=end)
            read = partial(bodies.from_json, body, self._limits, prepared)
        else:
            raise Refused(
                415,
                "expected multipart/form-data, image/*, application/x-npy or application/json, got"
                f" {kind[:80]!r}",
            )
        try:
            async with asyncio.timeout(left(end)):
                images: Tensor = await to_thread.run_sync(read, limiter=self._decoders)
        except TimeoutError:
            raise late() from None
        return images

    async def _files(self, request: Request, end: float) -> list[bytes]:
        most = self.settings.max_body
        chunks = self._chunks(request, most, end)
        parser = MultiPartParser(
            request.headers, chunks, max_files=self.settings.max_images, max_fields=8
        )
        parser.spool_max_size = most + 1  # in memory
        try:
            form = await parser.parse()
            found = form.getlist("files")
            if len(found) != len(form.multi_items()) or any(isinstance(f, str) for f in found):
                raise Refused(422, "expected nothing but files, in the field 'files'")
            return [await file.read() for file in found if not isinstance(file, str)]
        except MultiPartException as error:
            raise Refused(422, f"expected files in a form: {error.message}") from None
        except (KeyError, ValueError):
            raise Refused(422, "expected files in a form with a boundary") from None
        finally:
            for begun in parser._files_to_close_on_error:  # also files that arrived in part
                begun.close()

    async def body(
        self, request: Request, most: int | None = None, end: float | None = None
    ) -> bytes:
        """The whole body, of at most `most` bytes."""
        end = time.monotonic() + self.settings.timeout if end is None else end
        most = self.settings.max_body if most is None else most
        return b"".join([chunk async for chunk in self._chunks(request, most, end)])

    async def _chunks(self, request: Request, most: int, end: float) -> AsyncGenerator[bytes, None]:
        """The body piece by piece, if it is neither too large nor too slow."""
        sentence = f"expected a body of at most {most} bytes"
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > most:
            raise Refused(413, sentence)
        chunks, total = request.stream().__aiter__(), 0
        while True:
            try:
                chunk = await asyncio.wait_for(anext(chunks), left(end))
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise Refused(408, "the body did not arrive in time", Connection="close") from None
            total += len(chunk)
            if total > most:
                raise Refused(413, sentence)
            yield chunk
