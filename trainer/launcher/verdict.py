"""Why a run on several processes ended as it did: a function of what the ranks told and of who died when.

When a rank fails, the others fail soon after, because their connections to it break. The first failure is the
cause, and the only one worth telling.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.failures import LOST_PEER
from trainer.launcher.records import End

KILLED = "rank_killed"
EXIT_OTHER = 1
SIGNAL_EXIT = 128
"""A process that was killed by signal N is reported as exit code 128 + N, as shells do."""

LAUNCHER_GRACE_S = 2.5
"""A little less than what Paddle's launcher gives the other ranks between a failure and SIGKILL."""
_SAME_MOMENT_S = 0.5

_OF_THE_SYSTEM = frozenset({"internal", "oom", "disk", "interrupted", LOST_PEER})
"""Kinds of errors that may strike one rank alone, so that it matters which."""


@dataclass(frozen=True)
class Death:
    """A process has died.

    Attributes:
        t: when that was noticed, in seconds of CLOCK_MONOTONIC.
        status: its exit code, negative for a signal; None when it could not be learned.
    """

    t: float
    status: int | None


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run: the exit code, and for a failure the fields of its ``error`` event.

    Attributes:
        rank: the rank that failed first; None when it was none of this host's.
        logged: whether that rank has written the same into its log.
    """

    exit_code: int
    kind: str = ""
    msg: str = ""
    problems: tuple[dict[str, Any], ...] = ()
    rank: int | None = None
    logged: bool = False


def judge(
    ranks: Iterable[int], ends: Sequence[End], deaths: dict[int, Death], launcher: Death, complaint: str = ""
) -> Verdict:
    """The outcome of a run whose processes are all gone. Of ranks that failed alike the lowest is named.

    Args:
        ranks: the ranks of this host.
        ends: what they told about their ends.
        deaths: when which rank died, as far as they were seen alive.
        launcher: the end of Paddle's launcher.
        complaint: what the launcher said last.
    """
    told = {end.rank: end for end in ends}
    if all(rank in told and told[rank].exit_code == 0 for rank in ranks):
        return Verdict(0)
    failures = sorted((end for end in ends if end.exit_code != 0), key=lambda end: end.t)
    silent = {rank: death for rank, death in deaths.items() if rank not in told}
    if _was_killed(launcher) and not _failed_before(launcher.t - _SAME_MOMENT_S, failures, silent):
        return _killed_launcher(launcher)
    first = min([*(end.t for end in failures), *(death.t for death in silent.values())], default=launcher.t)
    causes = [(end.t, _told(end)) for end in failures if end.kind != LOST_PEER]
    causes += [
        (death.t, _unexplained(rank, death))
        for rank, death in silent.items()
        if death.t < first + LAUNCHER_GRACE_S
    ]
    if causes:
        cause = min(causes, key=lambda cause: cause[0])[1]
        return min((same for _, same in causes if same.msg == cause.msg), key=lambda same: same.rank or 0)
    if failures:
        return _told(failures[0])
    return _failed_launcher(launcher, complaint)


def stopped_early() -> Verdict:
    """Of a run that was stopped before any of its ranks had begun."""
    msg = "Stopped before any of its processes had begun; nothing was done or saved."
    return Verdict(EXIT_OTHER, "interrupted", msg)


def _was_killed(death: Death) -> bool:
    return death.status is not None and death.status < 0


def _failed_before(t: float, failures: Sequence[End], silent: dict[int, Death]) -> bool:
    return any(end.t < t for end in failures) or any(death.t < t for death in silent.values())


def _told(end: End) -> Verdict:
    msg = f"Rank {end.rank}: {end.msg}" if end.kind in _OF_THE_SYSTEM else end.msg
    return Verdict(end.exit_code, end.kind, msg, end.problems, end.rank, logged=True)


def _unexplained(rank: int, death: Death) -> Verdict:
    """A rank that died without a word."""
    others = "All other ranks were ended; the run can go on from its last checkpoint."
    if death.status is not None and death.status >= 0:
        msg = f"Rank {rank} ended with exit status {death.status} and no word of why. {others}"
        return Verdict(death.status or EXIT_OTHER, "internal", msg, rank=rank)
    number = signal.SIGKILL if death.status is None else -death.status
    by = "a signal" if death.status is None else f"signal {number} ({_name(number)})"
    perhaps = " Perhaps the host had no memory left." if number == signal.SIGKILL else ""
    return Verdict(
        SIGNAL_EXIT + number, KILLED, f"Rank {rank} was killed by {by}.{perhaps} {others}", rank=rank
    )


def _killed_launcher(launcher: Death) -> Verdict:
    number = -(launcher.status or 0)
    msg = f"The launcher of the ranks was killed by signal {number} ({_name(number)}), and the ranks with it."
    return Verdict(SIGNAL_EXIT + number, KILLED, msg)


def _failed_launcher(launcher: Death, complaint: str) -> Verdict:
    said = f": {complaint}" if complaint else ", and said nothing"
    msg = f"The ranks could not be started: the launcher exited with status {launcher.status}{said}"
    return Verdict(EXIT_OTHER, "internal", msg)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
