"""What the end of a trainer means for its job: a pure function."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from store.completion import DONE
from store.reasons import Reason
from store.reports import Certainty, Outcome
from store.states import Status

EXIT_BAD_CONFIG = 2
EXIT_BAD_DATA = 3
EXIT_DEADLINE = 75
SIGNAL_EXIT = 128
"""A shell or launcher that passes on the death of a child by signal N exits with 128 + N."""
CRASHES = frozenset(
    {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSYS}
)
"""Signals that a process brings upon itself; others come from outside."""
LOST_PEER = "lost_peer"
"""Kind of the error of a process that others have left."""
INTERRUPTED = "interrupted"
"""Kind of the error of a trainer that was stopped before it had begun."""
RANK_KILLED = "rank_killed"
"""Kind of the error of a trainer with several processes, one of which was killed; its message names it."""


class Stop(StrEnum):
    """Why the runner has told the trainer to stop."""

    cancel = "cancel"
    timeout = "timeout"
    host_stopping = "host_stopping"
    draining = "draining"
    preempted = "preempted"
    deserted = "deserted"
    """Another host of the attempt has ended."""


@dataclass(frozen=True)
class Ending:
    """All that is known about how a trainer ended."""

    exit_code: int | None
    """Negative for a signal; None when it was never started."""
    start_failure: str | None = None
    """Why the host could not start it."""
    stop: Stop | None = None
    killed: bool = False
    """It had to be killed because it did not stop in the time that it was given."""
    grace_s: float = 0.0
    timeout_s: float | None = None
    out_of_memory: bool = False
    """The kernel has killed a process of this memory group for want of memory meanwhile."""
    error: Mapping[str, Any] | None = None
    """Its last "error" event."""
    result: Mapping[str, Any] | None = None
    """Its last "result" event."""
    hosts: int = 1
    """How many hosts run the attempt."""


def decide(ending: Ending) -> Outcome | None:
    """The outcome to report; None when the trainer left because its lease was over, which is no outcome."""
    if ending.hosts > 1 and ending.exit_code not in (0, None, EXIT_DEADLINE) and _lost_another(ending):
        message = "The trainer here lost its connection to those on the other hosts of the job."
        return replace(_failed(ending, Reason.host_lost, message), certainty=Certainty.doubtful)
    outcome = _decide(ending)
    if outcome is None or outcome.status is not Status.failed or ending.start_failure is not None:
        return outcome
    return replace(outcome, certainty=_certainty(ending))


def _lost_another(ending: Ending) -> bool:
    """Whether the trainer failed because of another host, as far as can be seen here."""
    kind = ending.error.get("kind") if ending.error else None
    if ending.stop is Stop.deserted:
        return ending.killed or kind in (None, LOST_PEER, INTERRUPTED)
    return ending.stop is None and kind == LOST_PEER


def _certainty(ending: Ending) -> Certainty:
    if ending.stop not in (None, Stop.deserted):
        return Certainty.patient
    if ending.exit_code == 0 and ending.result is not None:
        return Certainty.doubtful  # it stopped because another host wanted it
    number = _signal_number(ending.exit_code)
    return Certainty.patient if number in CRASHES else Certainty.certain


def _decide(ending: Ending) -> Outcome | None:
    if ending.stop is Stop.cancel:
        return Outcome(Status.cancelled, Reason.user_cancelled, _stopped(ending), ending.exit_code)
    if ending.start_failure is not None:
        message = f"The trainer could not be started: {ending.start_failure}."
        return _failed(ending, Reason.host_failed, message)
    if ending.exit_code == EXIT_DEADLINE:
        return None
    completed = ending.result is not None and not ending.result.get("stopped")
    if ending.exit_code == 0 and completed:
        return Outcome(Status.succeeded, Reason.completed, DONE, 0)
    if ending.stop is Stop.timeout:
        message = f"It ran longer than its timeout_s of {ending.timeout_s:g} seconds. {_stopped(ending)}"
        return _failed(ending, Reason.timed_out, message)
    if ending.stop is Stop.host_stopping:
        message = f"The service on this host was shut down. {_stopped(ending)}"
        return _failed(ending, Reason.host_stopping, message)
    if ending.stop is Stop.draining:
        return _failed(ending, Reason.host_stopping, f"The host is drained. {_stopped(ending)}")
    if ending.stop is Stop.preempted:
        message = f"A more urgent job needed the devices. {_stopped(ending)}"
        return _failed(ending, Reason.preempted, message)
    if ending.exit_code == 0:
        return _ended_early(ending)
    number = _signal_number(ending.exit_code)
    return _by_code(ending) if number is None else _by_signal(ending, number)


def _stopped(ending: Ending) -> str:
    if ending.exit_code is None:
        return "The trainer had not been started yet."
    if ending.killed:
        return f"The trainer did not stop within {ending.grace_s:g} seconds of SIGTERM and was killed."
    if ending.result is not None and ending.result.get("stopped"):
        if not ending.result.get("kept", True):
            return "The trainer has stopped. A task like this keeps nothing of what is not finished."
        return "The trainer has stopped with a checkpoint."
    return "The trainer had saved nothing new when it stopped."


def _ended_early(ending: Ending) -> Outcome:
    if ending.result is None:
        unexplained = "The trainer exited with code 0 but reported no result; its log may tell why."
        message = ending.error["msg"] if ending.error else unexplained
        return _failed(ending, Reason.trainer_crashed, message)
    message = f"{_stopped(ending)} Something outside the service had sent it SIGTERM."
    return _failed(ending, Reason.trainer_killed, message)


def _signal_number(exit_code: int | None) -> int | None:
    """The signal that the exit code speaks of, None for an ordinary end."""
    if exit_code is None or 0 <= exit_code <= SIGNAL_EXIT or exit_code >= SIGNAL_EXIT + signal.NSIG:
        return None
    return exit_code - SIGNAL_EXIT if exit_code > 0 else -exit_code


def _by_signal(ending: Ending, number: int) -> Outcome:
    if number == signal.SIGKILL and ending.out_of_memory:
        message = (
            "The host ran out of memory and the kernel killed the trainer. "
            "Use a smaller batch or model, or a host with more memory."
        )
        return _failed(ending, Reason.out_of_memory, message)
    reason = Reason.trainer_crashed if number in CRASHES else Reason.trainer_killed
    if ending.error and ending.error.get("kind") == RANK_KILLED:
        return _failed(ending, reason, ending.error["msg"])
    message = f"The trainer was killed by {_signal_name(number)}."
    if ending.error:
        message += f" Before that it said: {ending.error['msg']}"
    return _failed(ending, reason, message)


def _by_code(ending: Ending) -> Outcome:
    message = ending.error["msg"] if ending.error else f"The trainer exited with code {ending.exit_code}."
    if ending.exit_code == EXIT_BAD_CONFIG:
        return _failed(ending, Reason.bad_config, message)
    if ending.exit_code == EXIT_BAD_DATA:
        return _failed(ending, Reason.bad_data, message)
    kind = ending.error.get("kind") if ending.error else None
    if kind == "nan_loss":
        return _failed(ending, Reason.nan_loss, message)
    if kind == "oom":
        return _failed(ending, Reason.out_of_memory, message)
    if kind == "device":
        return _failed(ending, Reason.device_error, message)
    return _failed(ending, Reason.trainer_crashed, message)


def _failed(ending: Ending, reason: Reason, message: str) -> Outcome:
    number = _signal_number(ending.exit_code)
    killed_by = None if number is None else _signal_name(number)
    return Outcome(Status.failed, reason, message, ending.exit_code, killed_by)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
