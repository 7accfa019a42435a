"""Why a task failed, as an ``error`` event says it: a sentence that a user can act on, and an exit code."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass

from trainer.config.problems import ConfigError, DataError, Problem, RegattaError
from trainer.files import WriteError

EXIT_OTHER = 1
_OUT_OF_MEMORY = (
    "out of memory",
    "resourceexhausted",
    "fail to alloc",
    "cannot allocate memory",
    "bad_alloc",
)
_BROKEN_DEVICE = re.compile(
    r"uncorrectable ecc|cudaErrorECCUncorrectable|hardware stack error|cudaErrorHardwareStackError"
    r"|fallen off the bus|no cuda-capable device|cudaErrorNoDevice|gpu is lost",
    re.IGNORECASE,
)
"""How the driver and CUDA say that a device is broken."""
DEVICE = "device"
"""Kind of the error of a task whose device is broken."""
_DISK_FULL = (os.strerror(errno.ENOSPC).lower(), os.strerror(errno.EDQUOT).lower())
"""How the system says so; libraries pass it on in errors of their own."""
DISK = "disk"
"""Kind of the error of a task that could not write."""
LOST_PEER = "lost_peer"
"""Kind of the error of a rank that failed because another one was gone."""
_BROKEN_CONNECTION = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by peer|broken pipe|gloo|nccl|TCPStore"
    r"|lost (its|the) connection|remote process exited|socket.*(closed|timed? ?out)",
    re.IGNORECASE,
)
"""How the libraries between ranks say so."""
_LONGEST = 300


@dataclass(frozen=True)
class Failure:
    """The fields of an ``error`` event, and what the process exits with."""

    exit_code: int
    kind: str
    msg: str
    problems: tuple[Problem, ...] = ()


def describe(error: BaseException) -> Failure:
    """What an error means."""
    if isinstance(error, RegattaError):
        return Failure(error.exit_code, _kind(error), _first_sentence(error), error.problems)
    return Failure(EXIT_OTHER, *_unexpected(error))


def _unexpected(error: BaseException) -> tuple[str, str]:
    """Kind and sentence of an error that is not one of ours."""
    text = " ".join(f"{error}".split())
    if isinstance(error, KeyboardInterrupt):
        return (
            "interrupted",
            "The trainer was interrupted before it could save; it goes on from its last checkpoint.",
        )
    if _BROKEN_DEVICE.search(text):
        return DEVICE, f"A device of the host is broken: {text[:_LONGEST]}. The log has the details."
    if isinstance(error, MemoryError) or any(words in text.lower() for words in _OUT_OF_MEMORY):
        return (
            "oom",
            "The device ran out of memory. Lower max_length, or per_device_train_batch_size and raise"
            " gradient_accumulation_steps, which keeps the result.",
        )
    if sentence := _disk(error, text):
        return DISK, sentence
    several = int(os.environ.get("PADDLE_TRAINERS_NUM", "1")) > 1
    kind = LOST_PEER if several and _BROKEN_CONNECTION.search(text) else "internal"
    msg = f"The trainer failed: {type(error).__name__}: {text[:_LONGEST]}. The log has the details."
    return kind, msg


def _disk(error: BaseException, text: str) -> str | None:
    """What keeps files from being written; None: something else failed."""
    file = getattr(error, "filename", None)
    if any(words in text.lower() for words in _DISK_FULL):
        hint = "Free some space, or name another output_dir; for checkpoints, set save_total_limit."
        return f"The disk is full{f' ({file})' if file else ''}. {hint}"
    if isinstance(error, WriteError):
        why = error.strerror
        return f"{error.folder} cannot be written to ({why}). Name an output_dir that you may write to."
    return None


def _kind(error: RegattaError) -> str:
    if isinstance(error, ConfigError):
        return "config"
    if isinstance(error, DataError):
        return "data"
    return getattr(error, "kind", "training")


def _first_sentence(error: RegattaError) -> str:
    more = len(error.problems) - 1
    return f"{error.problems[0]}" + (f" ({more} more problem{'s' if more > 1 else ''})" if more > 0 else "")
