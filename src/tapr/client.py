"""A client of `tapr serve`: images in, predictions out.

    from tapr.client import Client

    with Client("http://127.0.0.1:8000") as client:
        answer = client.predict("camera-1", ["street.jpg"])
        print(answer.predictions[0].name, answer.predictions[0].probability)

It needs httpx, of the extra `serve`, and no torch.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx
import numpy as np
from numpy.typing import NDArray

from tapr.errors import TaprError

Array = NDArray[np.uint8] | NDArray[np.float32]


class Likely(NamedTuple):
    """A class, its name if it has one, and how probable it is."""

    number: int
    name: str | None
    probability: float


class Image(NamedTuple):
    """The likeliest classes of an image, the likeliest first; none if its logits are not finite."""

    top: tuple[Likely, ...]

    @property
    def number(self) -> int:
        """The predicted class."""
        return self.top[0].number

    @property
    def name(self) -> str | None:
        """The predicted class's name, if it has one."""
        return self.top[0].name

    @property
    def probability(self) -> float:
        """The probability of the predicted class."""
        return self.top[0].probability


@dataclass(frozen=True)
class Answer:
    """The server's answer to the images of one request."""

    predictions: tuple[Image, ...]
    adapted: bool  # whether the stream adapted on them
    mode: str  # "adapted", "frozen", or "late": the unadapted model answered, for lack of time
    health: str  # "ok", "watch" or "harm"
    reason: str  # why it is not "ok"
    action: str  # what the guard did about it
    batch: int  # the number of the batch in its stream, from 1
    together: int  # images in the batch
    seconds: dict[str, float]
    request: str  # the request's id, as the server's log has it


class RefusedError(TaprError):
    """The server refused a request; the message says why."""

    def __init__(self, status: int, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.retry_after = retry_after  # seconds, if the server says when to try again


class Client:
    """Calls one server. Threads may share a client."""

    def __init__(self, url: str, token: str | None = None, *, timeout: float = 60.0) -> None:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def predict(
        self, stream: str, images: Sequence[Path | str | bytes] | Array, *, top: int = 5
    ) -> Answer:
        """Have a stream adapt on images and predict them.

        Images are paths or contents of image files, or an array of the model's input size: uint8
        [B, H, W, C], or float32 [B, C, H, W] in [0, 1].
        """
        path, options = f"/v1/streams/{stream}/predict", {"params": {"top": top}}
        if isinstance(images, np.ndarray):
            file = io.BytesIO()
            np.save(file, images, allow_pickle=False)
            headers = {"Content-Type": "application/x-npy"}
            said = self._call("POST", path, content=file.getvalue(), headers=headers, **options)
        else:
            contents = [i if isinstance(i, bytes) else Path(i).read_bytes() for i in images]
            files = [("files", (str(place), each)) for place, each in enumerate(contents)]
            said = self._call("POST", path, files=files, **options)
        return _answer(said.json())

    def streams(self) -> list[dict[str, Any]]:
        """All streams."""
        return list(self._call("GET", "/v1/streams").json()["streams"])

    def stream(self, name: str) -> dict[str, Any]:
        """One stream in detail."""
        return dict(self._call("GET", f"/v1/streams/{name}").json())

    def reset(self, name: str) -> None:
        """Return a stream to the source model."""
        self._call("POST", f"/v1/streams/{name}/reset")

    def freeze(self, name: str) -> None:
        """Let a stream predict without changing its state."""
        self._call("POST", f"/v1/streams/{name}/freeze")

    def unfreeze(self, name: str) -> None:
        """Let a stream adapt again."""
        self._call("POST", f"/v1/streams/{name}/unfreeze")

    def snapshot(self, name: str) -> str:
        """Keep a stream's state, and return the snapshot's name."""
        return str(self._call("POST", f"/v1/streams/{name}/snapshots").json()["result"])

    def snapshots(self, name: str) -> list[str]:
        """The names of a stream's snapshots, the oldest first."""
        found = self._call("GET", f"/v1/streams/{name}/snapshots").json()["snapshots"]
        return [each["name"] for each in found]

    def roll_back(self, name: str, snapshot: str) -> None:
        """Return a stream to a snapshot."""
        self._call("POST", f"/v1/streams/{name}/rollback", json={"snapshot": snapshot})

    def export(self, name: str) -> bytes:
        """A stream's state: a file that `tapr.load` reads."""
        return self._call("GET", f"/v1/streams/{name}/state").content

    def adopt(self, name: str, state: bytes) -> None:
        """Give a stream a state that was exported."""
        self._call("PUT", f"/v1/streams/{name}/state", content=state)

    def delete(self, name: str) -> None:
        """Delete a stream with its snapshots."""
        self._call("DELETE", f"/v1/streams/{name}")

    def _call(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = self._http.request(method, path, **options)
        if answer.is_success:
            return answer
        try:
            sentence = str(answer.json()["error"])
        except (ValueError, KeyError, TypeError):
            sentence = f"expected an answer of tapr serve, got status {answer.status_code}"
        after = answer.headers.get("retry-after", "")
        raise RefusedError(
            answer.status_code, sentence, float(after) if after.isdecimal() else None
        )


def _answer(said: dict[str, Any]) -> Answer:
    images = (
        Image(tuple(Likely(**likely) for likely in each["top"])) for each in said["predictions"]
    )
    return Answer(
        predictions=tuple(images),
        adapted=said["adapted"],
        mode=said["mode"],
        health=said["health"]["verdict"],
        reason=said["health"]["reason"],
        action=said["health"]["action"],
        batch=said["batch"],
        together=said["together"],
        seconds=said["seconds"],
        request=said["request"],
    )
