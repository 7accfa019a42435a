"""Repeats a step in a thread until there is nothing left to do, through any outage of what it needs."""

import logging
import threading
from collections.abc import Callable

PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0

log = logging.getLogger(__name__)


class Fenced(Exception):  # noqa: N818 - a state of affairs, not a fault
    """Another attempt has taken over: nothing may be written any more."""


class Pump(threading.Thread):
    """Calls `step(final)` again and again; a step that fails is repeated after a growing pause.

    Args:
        step: does a piece of work and tells whether there may be more at once. `final` is True once the
            source of the work has ended; the thread ends when a final step finds nothing more.
        fenced: called when a step raises `Fenced`; the thread ends then.
    """

    def __init__(self, name: str, step: Callable[[bool], bool], fenced: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.drained = False
        self._step = step
        self._fenced = fenced
        self._final = threading.Event()
        self._abandoned = threading.Event()

    def run(self) -> None:
        pause = PAUSE_S
        while not self._abandoned.is_set():
            final = self._final.is_set()
            try:
                more = self._step(final)
            except Fenced:
                self._fenced()
                return
            except Exception:
                log.exception("%s: will be tried again in %.1f s", self.name, pause)
                self._abandoned.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            pause = PAUSE_S
            if final and not more:
                self.drained = True
                return
            if not more:
                self._final.wait(PAUSE_S)

    def finish(self) -> None:
        """The source has ended: drain it, then end."""
        self._final.set()

    def abandon(self) -> None:
        """End after the present step, whatever is left."""
        self._abandoned.set()
