"""Process-wide settings that make Paddle fast on a CPU host.

Four of them matter, each by a measured factor (`benchmarks/training_step.py`): glibc must keep freed memory
instead of handing it back to the kernel (every large tensor would be page-faulted in again), OpenMP must be
told its thread count (Paddle forces one thread when the variable is unset), Paddle must not make strided
views (copying out of them is slow on CPU), and the MKL in Paddle must be told that a processor which is not
Intel's has AVX2 as well.
"""

import contextlib
import ctypes
import io
import os
import sys
import warnings
from pathlib import Path

# Parameter numbers of mallopt(3), from glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8

_HEAP_STEP = 64 << 20
_GIVEN_BACK_FROM = 1 << 20

#: The kernels for AVX2 and FMA. That MKL is of 2019 and looks who made the processor before it looks what it
#: can do; matrix products of all others run at a third of their speed without this.
_MKL_AVX2 = "5"
_MKL_NEEDS = {"avx2", "fma"}


def configure_cpu(threads: int | None = None, *, keep_freed_memory: bool = True) -> None:
    """Prepare this process for training on CPU. Call it before Paddle is imported.

    Variables that are already set in the environment win, so an operator can override each of them.

    Args:
        threads: OpenMP threads of this process; by default every processor this process may run on.
        keep_freed_memory: what training needs, where every step has the same sizes. False: tensors of 1 MiB
            and more go back to the system at once. For work whose sizes change all the time, whose gaps would
            add up to as much again.
    """
    if "paddle" in sys.modules:
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or len(os.sched_getaffinity(0))))
    os.environ.setdefault("FLAGS_use_stride_kernel", "0")
    choose_mkl_kernels()
    if keep_freed_memory:
        _set_allocator({_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: -1, _M_TOP_PAD: _HEAP_STEP, _M_ARENA_MAX: 1})
    else:
        # Setting it keeps glibc from raising it with each tensor that is freed.
        _set_allocator({_M_MMAP_THRESHOLD: _GIVEN_BACK_FROM, _M_ARENA_MAX: 1})


def import_paddle(*, keep_freed_memory: bool = True) -> None:
    """Prepare this process and import Paddle, without its words about threads and caches."""
    if "paddle" in sys.modules:
        return
    configure_cpu(keep_freed_memory=keep_freed_memory)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.filterwarnings("ignore", message="No ccache found")
        import paddle  # noqa: F401


def choose_mkl_kernels() -> None:
    """Have the MKL in Paddle use AVX2 where it would not by itself; before Paddle is imported."""
    if needs_mkl_hint(_processor()):
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", _MKL_AVX2)


def needs_mkl_hint(cpuinfo: str) -> bool:
    """Whether a processor has AVX2 and is not Intel's, from the text of /proc/cpuinfo."""
    fields = dict(line.split(":", 1) for line in cpuinfo.splitlines() if ":" in line)
    named = {name.strip(): words.split() for name, words in fields.items()}
    maker, flags = named.get("vendor_id", ["GenuineIntel"]), named.get("flags", [])
    return maker != ["GenuineIntel"] and _MKL_NEEDS.issubset(flags)


def _processor() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not Linux: MKL decides alone


def _set_allocator(parameters: dict[int, int]) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return  # not glibc: its allocator has no such settings
    for parameter, value in parameters.items():
        mallopt(parameter, value)
