"""Settings of a whole process: whoever owns it, like the `tapr` command, makes them at its start.

Memory: a forward and backward takes and frees hundreds of megabytes. By default glibc maps each
large block afresh and the kernel fills it with zeros page by page; kept blocks are used again.

Signals: Ctrl-C (SIGINT) and SIGTERM unwind the program once, so that what is under way is saved,
and end the process at once when they come again.
"""

import ctypes
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple

VARIABLE = "TAPR_ALLOCATOR"  # "default" keeps the command from calling `keep_memory`
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
STOPPING = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], object]
TRIED = 1 << 22  # bytes that are taken from the kernel to see what that costs
_kept = threading.Event()  # set by `keep_memory`
SAME_REQUEST = 0.2  # seconds: `timeout` sends SIGTERM to the process and again to its group


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it unwinds the program as Ctrl-C does."""


class Listener:
    """The signals that have asked this process to stop: the first unwinds, the second ends it."""

    def __init__(self) -> None:
        self.first: int | None = None  # the signal that came first
        self._when = 0.0

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Raise Terminated or KeyboardInterrupt once."""
        if self.note(number):
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    def note(self, number: int, frame: FrameType | None = None) -> bool:
        """Remember the first signal, and end the process at the second; was it the first?"""
        now = time.monotonic()
        if self.first is None:
            self.first, self._when = number, now
            return True
        if now - self._when > SAME_REQUEST:
            os._exit(128 + number)
        return False


@contextmanager
def listening() -> Iterator[Listener]:
    """Let SIGINT and SIGTERM unwind the block, so that what is under way can be saved."""
    listener = Listener()
    before = _handle_with(listener.handle)
    try:
        yield listener
    finally:
        _put_back(before)


class Uninterrupted:
    """A short block, e.g. of writing, in which SIGINT and SIGTERM wait for the end of the block."""

    def __enter__(self) -> None:
        self._listener = Listener()
        self._before = _handle_with(self._listener.note)

    def __exit__(self, *error: object) -> None:
        _put_back(self._before)
        if self._listener.first is not None and error[0] is None:
            signal.raise_signal(self._listener.first)


def _handle_with(handler: Handler) -> dict[int, Any]:
    """Handle the signals that are not ignored; return what handled them before."""
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        return {}
    heard = [n for n in STOPPING if signal.getsignal(n) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, handler) for number in heard}


def _put_back(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def keep_memory() -> bool:
    """Let this process keep the memory it frees for its own next use; True where that was done.

    It holds for the whole process until its end, and only for glibc's `malloc`; elsewhere nothing
    happens. `import tapr` never calls it, the `tapr` command does at its start.
    """
    if not _glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = all(bool(mallopt(*setting)) for setting in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)))
    if done:
        _kept.set()
    return done


class Fresh(NamedTuple):
    """Memory that some work took from the kernel afresh."""

    taken: int  # bytes
    share: float  # of the work's processor time that this took, about


def fresh_memory(work: Callable[[], object]) -> Fresh | None:
    """Do the work and tell what `keep_memory` would save it; None where it would save nothing."""
    if _kept.is_set() or not _glibc():
        return None
    pages, seconds = _faults(work)
    ones = b"1" * TRIED
    with mmap.mmap(-1, TRIED) as block:
        touched, needed = _faults(lambda: block.write(ones))
    if not pages or not touched:
        return None
    return Fresh(pages * mmap.PAGESIZE, min(1.0, pages * needed / touched / seconds))


def _faults(work: Callable[[], object]) -> tuple[int, float]:
    """Pages that the kernel handed over during the work, and its processor time in seconds."""
    import resource  # not on Windows

    pages, began = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.process_time()
    work()
    seconds = time.process_time() - began
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages, max(seconds, 1e-9)


def prepare() -> None:
    """Settle memory and threads of a process of our own, before torch is loaded."""
    # Threads that wait busily take a core from whoever else needs it, themselves included.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get(VARIABLE) != "default":
        keep_memory()


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Processes started in the block have these environment variables."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; macOS, musl
        return False
