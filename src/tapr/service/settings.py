"""What a server is told: where its state lies, and its limits."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """Times are in seconds, sizes in bytes."""

    folder: Path  # of the streams' states and the journal
    max_batch: int = 64  # images that are adapted on together
    max_wait: float = 0.02  # that the first image of a batch waits for others
    max_queue: int = 1024  # images that wait, before requests are refused
    budget: float | None = None  # that a request may take, before it is predicted without adapting
    save_every: float = 10.0  # the most adaptation that a kill can lose
    idle: float = 300.0  # after which a stream leaves the memory
    in_memory: int = 1000  # streams; the least recently used others are on disk only
    max_streams: int = 10_000
    snapshot_every: float = 600.0
    snapshots: int = 5  # that are kept of each stream
    pictures: bool = True  # keep small copies of a few images for the dashboard
    journal: bool = False  # log every prediction
    max_body: int = 16 * MIB
    max_images: int = 256  # of one request
    max_pixels: int = 1 << 25  # of one image, before it is resized
    rate: float = 0.0  # requests per second of one token, or address; 0: as many as come
    timeout: float = 30.0  # for a body to arrive, and for an answer
    alarm: str = ""  # the URL that is told of changes of health
    tokens: Path | None = None
