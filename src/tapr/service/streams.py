"""Many streams on one adapter: each has a state of its own, in memory or on disk.

What moves of a stream is captured after each batch and put back before its next one, as the
rollback of a step does it, so that a stream predicts bit for bit what an adapter of its own would.
Tensors that are still the source's are held once for all streams: of `steady` there remain the
statistics, some kilobytes. Everything here is called by the one thread that owns the adapter.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from tapr.adapters import Adapter
from tapr.adapters.moving import Moment
from tapr.errors import DataError, InputError, StateError
from tapr.service import tracing
from tapr.service.seen import Seen
from tapr.service.settings import Settings
from tapr.service.shelf import About, Shelf, Snapshot, check_name
from tapr.types import Health

log = logging.getLogger("tapr.service")


class FullError(InputError):
    """There are as many streams as the server keeps."""


class UnknownError(InputError):
    """There is no stream of this name."""


class Stream:
    """A camera, a tenant, a site: its adapted state, and what is known of it."""

    def __init__(self, name: str, about: About, moment: Moment | None = None) -> None:
        self.name, self.about = name, about
        self.moment = moment  # None: on disk
        self.saved = True  # is the state on disk this one?
        self.since = 0.0  # when it ceased to be
        self.used = 0.0
        self.snapped = 0.0  # when the last snapshot was taken
        self.health = Health()
        self.seen = Seen()
        self.own = 0  # bytes of state that are this stream's alone

    @property
    def in_memory(self) -> bool:
        """Is its state in memory?"""
        return self.moment is not None


class Streams:
    """The streams of one adapter."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, adapter: Adapter, settings: Settings, owner: str | None = None) -> None:
        self.adapter, self.settings = adapter, settings
        self.source = adapter.source
        self.shelf = Shelf(settings.folder, owner)
        self.shelf.claim(adapter)
        names = self.shelf.names() if owner is None else ()  # others may have them
        self.all = {name: Stream(name, self.shelf.about(name)) for name in names}
        self.failures = 0  # saves that failed
        self._active: Stream | None = None  # whose state the adapter has
        self._resident: dict[str, Stream] = {}  # in memory, the least recently used first

    def close(self) -> None:
        """Save what is not saved, and let go of the folder."""
        for stream in self.unsaved():
            self.save(stream)
        self.shelf.release()

    def get(self, name: str) -> Stream:
        """A stream that is there."""
        self._take_over(name)
        if name not in self.all:
            raise UnknownError(f"there is no stream {name!r}")
        return self.all[name]

    def find(self, name: str) -> Stream:
        """The stream of this name; a new one begins as the source model."""
        self._take_over(name)
        if name not in self.all:
            if len(self.all) >= self.settings.max_streams:
                raise FullError(
                    f"expected at most {self.settings.max_streams} streams, got one more"
                )
            stream = Stream(name, About(created=time.time()), self.source)
            stream.snapped = stream.used = stream.since = self.clock()
            stream.saved = False
            self.shelf.take(name)
            self._note(stream)  # a restart is to know of it, even before its state is saved
            self.all[name] = self._resident[name] = stream
        return self.all[name]

    def enter(self, stream: Stream) -> None:
        """Make the adapter what it was after the stream's last batch."""
        self._bring(stream)
        stream.used = self.clock()
        self._resident.pop(stream.name, None)
        self._resident[stream.name] = stream  # now the most recently used
        if len(self._resident) > self.settings.in_memory:
            self._make_room(stream)
            self._bring(stream)

    def keep(self, stream: Stream) -> None:
        """Keep what the adapter is now as the stream's state."""
        moment = self.adapter.capture()
        shared = {
            name: self.source.tensors[name]
            for name, tensor in moment.tensors.items()
            if _same(self.source.tensors.get(name), tensor)
        }
        stream.moment = moment._replace(tensors={**moment.tensors, **shared})
        stream.own = sum(t.nbytes for name, t in moment.tensors.items() if name not in shared)
        self._active = stream
        self._resident[stream.name] = stream
        if stream.saved:
            stream.saved, stream.since = False, self.clock()

    def undo(self, stream: Stream) -> None:
        """Make the adapter the stream's state again, whatever a batch has changed."""
        assert stream.moment is not None
        self.adapter.put_back(stream.moment)

    def unsaved(self) -> list[Stream]:
        """Streams whose state on disk is older than the one in memory."""
        return [stream for stream in list(self._resident.values()) if not stream.saved]

    def save(self, stream: Stream) -> bool:
        """Write a stream's state; False, and a line in the log, when that fails."""
        if not self.shelf.owns(stream.name):
            log.warning("the stream %s belongs to another replica by now: not saved", stream.name)
            self._forget(stream.name)
            return True
        try:
            with tracing.stream(stream.name), tracing.span("save", stream=stream.name):
                self._bring(stream)
                self.shelf.write(stream.name, self.adapter, stream.about)
        except DataError as error:
            self.failures += 1
            stream.since = self.clock()  # the next try is as far away as the next save
            log.error("the state of the stream %s cannot be saved: %s", stream.name, error)
            return False
        stream.saved = True
        if self.clock() - stream.snapped >= self.settings.snapshot_every:
            self._snapshot(stream)
        return True

    def _note(self, stream: Stream) -> None:
        """Write down that a stream is there; on a full disk it is answered all the same."""
        try:
            self.shelf.note(stream.name, stream.about)
        except DataError as error:
            self.failures += 1
            log.error("the stream %s cannot be written down: %s", stream.name, error)

    def tidy(self) -> None:
        """Save one stream that is due, or let one that is idle go to disk."""
        now = self.clock()
        due = [s for s in self.unsaved() if now - s.since >= self.settings.save_every]
        if due:
            self.save(min(due, key=lambda stream: stream.since))
            return
        oldest = next(iter(self._resident.values()), None)
        if oldest is not None and now - oldest.used >= self.settings.idle:
            self._evict(oldest)

    # What an operator may ask for.

    def reset(self, name: str) -> None:
        """Return a stream to the source model."""
        self._replace(self.get(name), self.source)

    def freeze(self, name: str, frozen: bool) -> None:
        """Let a stream predict without changing its state, or let it adapt again."""
        stream = self.get(name)
        stream.about.frozen = frozen
        self.shelf.note(name, stream.about)

    def snapshot(self, name: str) -> str:
        """Save the stream, and keep that state until newer snapshots take its place."""
        stream = self.get(name)
        if not self.save(stream):
            raise DataError("the state cannot be saved; the server's log says why")
        return self._snapshot(stream)

    def snapshots(self, name: str) -> list[Snapshot]:
        """The snapshots of a stream."""
        return self.shelf.snapshots(self.get(name).name)

    def roll_back(self, name: str, snapshot: str) -> None:
        """Return a stream to a snapshot."""
        stream = self.get(name)
        self._adopt(stream, self.shelf.kept(name, snapshot))

    def export(self, name: str) -> bytes:
        """A stream's state as the bytes of a file that `tapr.load` reads."""
        self.enter(self.get(name))
        with TemporaryDirectory(dir=self.settings.folder) as folder:
            self.adapter.save(Path(folder) / "state")
            return (Path(folder) / "state").read_bytes()

    def adopt(self, name: str, state: bytes) -> None:
        """Take a state that was exported as the state of a stream, or change nothing."""
        fresh = name not in self.all
        stream = self.find(name)
        with TemporaryDirectory(dir=self.settings.folder) as folder:
            path = Path(folder) / "state"
            path.write_bytes(state)
            try:
                self._adopt(stream, path)
            except StateError as error:
                if fresh:
                    self.delete(name)
                raise StateError(str(error).replace(str(path), "the state")) from None

    def delete(self, name: str) -> None:
        """Forget a stream, with all that is on disk."""
        self._forget(self.get(name).name)
        self.shelf.remove(name)

    def _take_over(self, name: str) -> None:
        """Of a shared folder: have the stream, as it is on disk, if another one had it before."""
        check_name(name)
        if self.shelf.owns(name):
            return
        self._forget(name)
        if self.shelf.has(name):
            self.shelf.take(name)
            self.all[name] = Stream(name, self.shelf.about(name))

    def _forget(self, name: str) -> None:
        """Let a stream go, and nothing that is on disk."""
        stream = self.all.pop(name, None)
        self._resident.pop(name, None)
        if self._active is stream:
            self._active = None

    def _bring(self, stream: Stream) -> None:
        """Give the adapter the stream's state."""
        if self._active is stream:
            return
        self._active = None
        if stream.moment is not None:
            self.adapter.put_back(stream.moment)
            self._active = stream
        else:
            self._load(stream, self.shelf.state(stream.name))

    def _adopt(self, stream: Stream, path: Path) -> None:
        """Take the state in a file as the stream's."""
        self._active = None
        self._read(path)
        self.keep(stream)
        self._replaced(stream)

    def _replace(self, stream: Stream, moment: Moment) -> None:
        self._active = None
        self.adapter.put_back(moment)
        self.keep(stream)
        self._replaced(stream)

    def _replaced(self, stream: Stream) -> None:
        stream.used, stream.health = self.clock(), Health()
        self.save(stream)  # what an operator did is not lost

    def _load(self, stream: Stream, path: Path) -> None:
        """Bring a stream back from disk; without a state there it begins as the source model."""
        if not path.exists():
            self.adapter.put_back(self.source)
        else:
            try:
                self._read(path)
            except StateError as error:
                log.error("the state of the stream %s cannot be read: %s", stream.name, error)
                raise StateError(
                    f"the saved state of the stream {stream.name!r} cannot be read: reset it, roll"
                    " it back to a snapshot, or import a state"
                ) from None
        self.keep(stream)
        stream.saved = True

    def _read(self, path: Path) -> None:
        """Load a state; what another stream has in its place is no measure of it."""
        self.adapter.put_back(self.source)
        self.adapter.load(path)

    def _snapshot(self, stream: Stream) -> str:
        stream.snapped = self.clock()
        return self.shelf.snapshot(stream.name, self.settings.snapshots)

    def _make_room(self, but: Stream) -> None:
        """Let the least recently used streams go to disk, if there are too many."""
        surplus = len(self._resident) - self.settings.in_memory
        for stream in [s for s in self._resident.values() if s is not but][: max(surplus, 0)]:
            self._evict(stream)

    def _evict(self, stream: Stream) -> None:
        if not stream.saved and not self.save(stream):
            stream.used = self.clock()  # it stays, rather than be lost
            return
        if self._active is stream:
            self._active = None
        self._resident.pop(stream.name, None)
        stream.moment = None


def _same(one: Tensor | None, other: Tensor) -> bool:
    """Are these the same, bit for bit?"""
    if one is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = (t.contiguous().flatten().view(torch.uint8) for t in (one, other))
    return torch.equal(first, second)
