"""Settings of a whole process: whoever owns it, like the `tapr` command, makes them at its start.

Memory: a forward and backward takes and frees hundreds of megabytes. By default glibc maps each
large block afresh and the kernel fills it with zeros page by page; kept blocks are used again.

Signals: Ctrl-C (SIGINT) and SIGTERM unwind the program once, so that what is under way is saved,
and end the process at once when they come again.
"""

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

VARIABLE = "TAPR_ALLOCATOR"  # "default" keeps the command from calling `keep_memory`
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
STOPPING = (signal.SIGINT, signal.SIGTERM)
SAME_REQUEST = 0.2  # seconds: `timeout` sends SIGTERM to the process and again to its group


class Terminated(KeyboardInterrupt):
    """SIGTERM came: it unwinds the program as Ctrl-C does."""


class Listener:
    """The signals that have asked this process to stop."""

    def __init__(self) -> None:
        self.first: int | None = None  # the signal that came first
        self._when = 0.0
        self._blocks = 0  # of `Uninterrupted` that are being run
        self._waiting = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Unwind at the first signal, end at the second."""
        now = time.monotonic()
        if self.first is None:
            self.first, self._when = number, now
            self._waiting = True
            self.unwind()
        elif now - self._when > SAME_REQUEST:
            os._exit(128 + number)

    def hold(self, change: int) -> None:
        """Enter (1) or leave (-1) a block that a signal must not tear."""
        self._blocks += change

    def unwind(self) -> None:
        """Raise what the first signal stands for, unless a block is being run or it was raised."""
        if self._waiting and not self._blocks:
            self._waiting = False
            raise Terminated if self.first == signal.SIGTERM else KeyboardInterrupt


_listener: Listener | None = None


@contextmanager
def listening() -> Iterator[Listener]:
    """Handle SIGINT and SIGTERM within the block; a signal that is ignored stays ignored."""
    global _listener
    outer, listener = _listener, Listener()
    before = {}
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        _listener = listener
        for number in STOPPING:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, listener.handle)
    try:
        yield listener
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _listener = outer


class Uninterrupted:
    """A short block, e.g. of writing, in which a signal waits for the end of the block."""

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        self._listener = _listener if main else None
        if self._listener is not None:
            self._listener.hold(1)

    def __exit__(self, *error: object) -> None:
        if self._listener is not None:
            self._listener.hold(-1)
            if error[0] is None:
                self._listener.unwind()


def keep_memory() -> bool:
    """Let this process keep the memory it frees for its own next use; True where that was done.

    It holds for the whole process until its end, and only for glibc's `malloc`; elsewhere nothing
    happens. `import tapr` never calls it, the `tapr` command does at its start.
    """
    if not _glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(bool(mallopt(*setting)) for setting in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, -1)))


def prepare() -> None:
    """Settle memory and threads of a process of our own, before torch is loaded."""
    # Threads that wait busily take a core from whoever else needs it, themselves included.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if os.environ.get(VARIABLE) != "default":
        keep_memory()


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; macOS, musl
        return False
