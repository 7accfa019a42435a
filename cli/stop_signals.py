"""SIGINT, SIGTERM and SIGHUP as a count that a main loop looks at."""

import signal
from types import FrameType, TracebackType
from typing import Self

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts the signals that ask this process to end, while the block lasts: one asks, two insist."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def asked(self) -> bool:
        return self.count > 0

    @property
    def insisted(self) -> bool:
        return self.count > 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
