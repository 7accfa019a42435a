"""Keeps the lease of an attempt alive, and learns from the answers what the service wants."""

import logging
import threading
from collections.abc import Callable

from store.attempts import Renewal
from worker.clock import boottime

RETRY_S = 1.0
REST_S = 0.2
"""Hints come in bursts, every report makes one: the least time between two renewals."""

log = logging.getLogger(__name__)


class Lease(threading.Thread):
    """Renews the lease every `heartbeat_s` seconds in a thread of its own.

    Args:
        renew: asks the database; raises whatever it likes when there is no answer.
        changed: called after every answer that matters: fenced, or a wish that it stops.
        renewed_at: CLOCK_BOOTTIME seconds before the lease was taken.
    """

    def __init__(
        self, renew: Callable[[], Renewal], changed: Callable[[], None], heartbeat_s: float, renewed_at: float
    ) -> None:
        super().__init__(name="lease", daemon=True)
        self.renewed_at = renewed_at
        self.fenced = threading.Event()
        self.cancel_requested = threading.Event()
        self.draining = threading.Event()
        self.preempted = threading.Event()
        self.deserted = threading.Event()
        self._renew = renew
        self._changed = changed
        self._heartbeat_s = heartbeat_s
        self._poke = threading.Event()
        self._rest = threading.Event()

    def run(self) -> None:
        while not self._rest.is_set() and not self.fenced.is_set():
            pause = self._heartbeat_s if self.renew_now() else min(self._heartbeat_s, RETRY_S)
            self._poke.wait(pause)
            self._rest.wait(min(pause, REST_S))
            self._poke.clear()

    def renew_now(self) -> bool:
        """Ask once; False when the database gave no answer."""
        asked_at = boottime()  # before the request: the lease is at least this old
        try:
            renewal = self._renew()
        except Exception as error:
            log.warning("the lease could not be renewed: %s", error)
            return False
        if not renewal.alive:
            self.fenced.set()
            self._changed()
            return True
        self.renewed_at = asked_at
        for wanted, told in (
            (renewal.cancel_requested, self.cancel_requested),
            (renewal.draining, self.draining),
            (renewal.preempted, self.preempted),
            (renewal.deserted, self.deserted),
        ):
            if wanted and not told.is_set():
                told.set()
                self._changed()
        return True

    def poke(self) -> None:
        """Renew at once: something may have changed."""
        self._poke.set()

    def end(self) -> None:
        """Stop renewing."""
        self._rest.set()
        self._poke.set()
