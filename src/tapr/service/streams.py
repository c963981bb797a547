"""Many streams on one adapter: each has a state of its own, in memory or on disk.

After each batch we capture the tensors that adaptation has changed, and put them back before the
stream's next batch, in the same way as a step is rolled back. A stream thus predicts bit for bit
what its own adapter would. Tensors that still equal the source model's are held once for all
streams: a stream of `steady` keeps only its statistics, some kilobytes. Only the one thread that
owns the adapter calls this module.
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
    """The server has as many streams as it may have."""


class UnknownError(InputError):
    """There is no stream of this name."""


class Stream:
    """One stream (a camera, a tenant, a site): its adapted state, and facts about it."""

    def __init__(self, name: str, about: About, moment: Moment | None = None) -> None:
        self.name, self.about = name, about
        self.moment = moment  # None: on disk
        self.saved = True  # whether the state on disk is this one
        self.since = 0.0  # when that ceased to be so
        self.used = 0.0
        self.snapped = 0.0  # when the last snapshot was taken
        self.health = Health()
        self.seen = Seen()
        self.own = 0  # bytes of state that are this stream's alone

    @property
    def in_memory(self) -> bool:
        """Whether the state is in memory."""
        return self.moment is not None


class Streams:
    """The streams of one adapter."""

    clock: Callable[[], float] = staticmethod(time.monotonic)

    def __init__(self, adapter: Adapter, settings: Settings, owner: str | None = None) -> None:
        self.adapter, self.settings = adapter, settings
        self.source = adapter.source
        self.shelf = Shelf(settings.folder, owner)
        self.shelf.claim(adapter)
        names = self.shelf.names() if owner is None else ()  # other replicas may have them
        self.all = {name: Stream(name, self.shelf.about(name)) for name in names}
        self.failures = 0  # saves that failed
        self._active: Stream | None = None  # whose state the adapter has
        self._resident: dict[str, Stream] = {}  # in memory, the least recently used first

    def close(self) -> None:
        """Save every stream that is not saved, and unlock the folder."""
        for stream in self.unsaved():
            self.save(stream)
        self.shelf.release()

    def get(self, name: str) -> Stream:
        """The stream of this name; an error if there is none."""
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
            self._note(stream)  # so that a restart knows it, even before its state is saved
            self.all[name] = self._resident[name] = stream
        return self.all[name]

    def enter(self, stream: Stream) -> None:
        """Give the adapter the state that it had after the stream's last batch."""
        self._bring(stream)
        stream.used = self.clock()
        self._resident.pop(stream.name, None)
        self._resident[stream.name] = stream  # now the most recently used
        if len(self._resident) > self.settings.in_memory:
            self._make_room(stream)
            self._bring(stream)

    def keep(self, stream: Stream) -> None:
        """Keep the adapter's present state as the stream's."""
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
        """Give the adapter the stream's state again, and undo what a batch has changed."""
        assert stream.moment is not None
        self.adapter.put_back(stream.moment)

    def unsaved(self) -> list[Stream]:
        """Streams whose state on disk is older than the one in memory."""
        return [stream for stream in list(self._resident.values()) if not stream.saved]

    def save(self, stream: Stream) -> bool:
        """Save a stream's state; if that fails, log it and return False."""
        if not self.shelf.owns(stream.name):
            log.warning("the stream %s now belongs to another replica: not saved", stream.name)
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
        """Save that a stream exists; if the disk is full, it is served nevertheless."""
        try:
            self.shelf.note(stream.name, stream.about)
        except DataError as error:
            self.failures += 1
            log.error("the facts about the stream %s cannot be saved: %s", stream.name, error)

    def tidy(self) -> None:
        """Save one stream that is due, or move an idle one to disk."""
        now = self.clock()
        due = [s for s in self.unsaved() if now - s.since >= self.settings.save_every]
        if due:
            self.save(min(due, key=lambda stream: stream.since))
            return
        oldest = next(iter(self._resident.values()), None)
        if oldest is not None and now - oldest.used >= self.settings.idle:
            self._evict(oldest)

    # The requests of operators.

    def reset(self, name: str) -> None:
        """Return a stream to the source model."""
        self._replace(self.get(name), self.source)

    def freeze(self, name: str, frozen: bool) -> None:
        """Let a stream predict without changing its state, or let it adapt again."""
        stream = self.get(name)
        stream.about.frozen = frozen
        self.shelf.note(name, stream.about)

    def snapshot(self, name: str) -> str:
        """Save the stream, and keep that state until newer snapshots replace it."""
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
        """Make an exported state the state of a stream; if it is not valid, nothing changes."""
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
        """Delete a stream, with all its files."""
        self._forget(self.get(name).name)
        self.shelf.remove(name)

    def _take_over(self, name: str) -> None:
        """In a shared folder, take the stream, as it is on disk, from the replica that had it."""
        check_name(name)
        if self.shelf.owns(name):
            return
        self._forget(name)
        if self.shelf.has(name):
            self.shelf.take(name)
            self.all[name] = Stream(name, self.shelf.about(name))

    def _forget(self, name: str) -> None:
        """Drop a stream from memory; its files stay."""
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
        """Make the state in a file the stream's."""
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
        self.save(stream)  # so that a kill does not undo what an operator did

    def _load(self, stream: Stream, path: Path) -> None:
        """Load a stream from disk; without a state there it begins as the source model."""
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
        """Load a state from a file; the tensors of the present stream must not interfere."""
        self.adapter.put_back(self.source)
        self.adapter.load(path)

    def _snapshot(self, stream: Stream) -> str:
        stream.snapped = self.clock()
        return self.shelf.snapshot(stream.name, self.settings.snapshots)

    def _make_room(self, but: Stream) -> None:
        """Move the least recently used streams to disk, if too many are in memory."""
        surplus = len(self._resident) - self.settings.in_memory
        for stream in [s for s in self._resident.values() if s is not but][: max(surplus, 0)]:
            self._evict(stream)

    def _evict(self, stream: Stream) -> None:
        if not stream.saved and not self.save(stream):
            stream.used = self.clock()  # it stays in memory, so that it is not lost
            return
        if self._active is stream:
            self._active = None
        self._resident.pop(stream.name, None)
        stream.moment = None


def _same(one: Tensor | None, other: Tensor) -> bool:
    """Whether two tensors are the same, bit for bit."""
    if one is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    first, second = (t.contiguous().flatten().view(torch.uint8) for t in (one, other))
    return torch.equal(first, second)
