"""The file that tells a trainer until when it may go on. Standard library only.

A runner that is frozen (SIGSTOP, swap, a suspended machine) cannot move the deadline, so its trainer ends
itself once the lease may be someone else's. A runner that works but cannot reach the database has lost
contact, not its attempt: whether another one has taken over is known only when the database answers. Until
then the trainer goes on, for `outage_s` seconds at most.
"""

from dataclasses import dataclass, field
from pathlib import Path

from worker.clock import boottime
from worker.workspace import write_atomically


@dataclass
class Deadline:
    """The deadline of one trainer, in CLOCK_BOOTTIME seconds."""

    path: Path
    ttl_s: float
    outage_s: float
    _written: float = field(default=0.0, init=False)

    def extend(self, renewed_at: float) -> bool:
        """Move the deadline as far as the last renewal of the lease allows; False when it is over.

        Call this several times within `ttl_s`; the file is written only when that moves it noticeably. Where
        that fails (a full disk), the deadline that was written last stays in force.

        Raises:
            OSError: the first deadline cannot be written.
        """
        now = boottime()
        until = min(now + self.ttl_s, renewed_at + max(self.ttl_s, self.outage_s))
        if until <= now:
            return False
        if until - self._written > self.ttl_s / 10:
            try:
                write_atomically(self.path, f"{until}\n")
            except OSError as error:
                if not self._written:
                    raise
                import logging  # here, because the trainer is started before anything is loaded that can wait

                logging.getLogger(__name__).warning("the trainer's deadline could not be moved: %s", error)
            else:
                self._written = until
        return True
