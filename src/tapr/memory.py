"""Memory that stays: glibc hands large blocks back at every free, and fetching them again costs.

A forward and backward takes and frees hundreds of megabytes. By default each large block is mapped
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


def _glibc() -> bool:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").startswith("glibc")
    except (AttributeError, ValueError, OSError):  # Windows; macOS, musl
        return False
