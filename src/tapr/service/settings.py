"""The settings of a server: where its state is, and its limits."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The settings of a server. Times are in seconds, sizes in bytes."""

    folder: Path  # where the streams' states and the journal are
    max_batch: int = 64  # the most images in a batch
    max_wait: float = 0.02  # how long the first image of a batch waits for others
    max_queue: int = 1024  # the most images that may wait; further requests are refused
    budget: float | None = None  # a request that would take longer is predicted without adapting
    save_every: float = 10.0  # time between saves: the most adaptation that a kill can lose
    idle: float = 300.0  # a stream unused for so long is moved to disk
    in_memory: int = 1000  # the most streams in memory; those used least recently are on disk
    max_streams: int = 10_000
    snapshot_every: float = 600.0
    snapshots: int = 5  # how many are kept of each stream
    pictures: bool = True  # keep small copies of a few images for the dashboard
    journal: bool = False  # log every prediction
    max_body: int = 16 * MIB
    max_images: int = 256  # in one request
    max_pixels: int = 1 << 25  # in one image, before it is resized
    rate: float = 0.0  # requests per second of one token or address; 0: no limit
    timeout: float = 30.0  # until a request is answered, its body included
    alarm: str = ""  # the URL to which changes of health are posted
    tokens: Path | None = None
