"""Long work stays answerable: every now and then it says that it goes on, and can be ended there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Called between small pieces of work. What it raises ends the work.
Tick = Callable[[], None]
#: The same, told how much of the present decoder layer is done, from 0 to 1.
Pulse = Callable[[float], None]


def no_tick() -> None:
    """Nobody asks."""


def no_pulse(share: float) -> None:
    """Nobody asks."""


class Steps:
    """The `Tick` of work that goes from decoder layer to decoder layer, in steps of about the same size.

    Args:
        pulse: what ticks are passed on to.
    """

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._done, self._all = 0, 1

    def __call__(self) -> None:
        self._pulse(self._done / self._all)

    @contextmanager
    def of_layer(self, count: int) -> Iterator[None]:
        """Inside, a decoder layer of so many steps is worked on; outside, nothing of the next one is done."""
        self._done, self._all = 0, max(count, 1)
        yield
        self._done = 0

    def step(self) -> None:
        """One more step is done."""
        self._done += 1
        self()
