"""Process-wide settings that make Paddle fast on a CPU host.

Three of them matter, each by a measured factor: glibc must keep freed memory instead of handing it back to
the kernel (every large tensor would be page-faulted in again), OpenMP must be told its thread count (Paddle
forces one thread when the variable is unset), and Paddle must not make strided views (copying out of them is
slow on CPU).
"""

import contextlib
import ctypes
import io
import os
import sys
import warnings

# Parameter numbers of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8

_HEAP_STEP = 64 << 20


def configure_cpu(threads: int | None = None) -> None:
    """Prepare this process for training on CPU. Call it before Paddle is imported.

    Variables that are already set in the environment win, so an operator can override each of them.

    Args:
        threads: OpenMP threads of this process; by default every processor this process may run on.
    """
    if "paddle" in sys.modules:
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or len(os.sched_getaffinity(0))))
    os.environ.setdefault("FLAGS_use_stride_kernel", "0")
    _keep_freed_memory()


def import_paddle() -> None:
    """Prepare this process and import Paddle, without its words about threads and caches."""
    if "paddle" in sys.modules:
        return
    configure_cpu()
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle  # noqa: F401


def _keep_freed_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc: its allocator has no such settings
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, -1)
    mallopt(_M_TOP_PAD, _HEAP_STEP)
    mallopt(_M_ARENA_MAX, 1)
