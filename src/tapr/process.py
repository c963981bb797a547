"""Settings of a whole process: whoever owns it, like the `tapr` command, makes them at its start.

A forward and backward takes and frees hundreds of megabytes. By default glibc maps each large block
afresh and the kernel fills it with zeros page by page; kept blocks are simply used again.
"""

import ctypes
import os

VARIABLE = "TAPR_ALLOCATOR"  # "default" keeps the command from calling `keep_memory`
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


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
