"""Wakes what waits in this process for something to happen to a job: one subscription for all."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Self

from store.wake import hints, job_channel


class Hints:
    """Use as an async context manager. Without a broker every wait just takes its full time."""

    def __init__(self, broker_url: str) -> None:
        self._broker_url = broker_url
        self._events: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._listener = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener

    async def _listen(self) -> None:
        async for channel in hints(self._broker_url):
            for event in self._events.get(channel, ()):
                event.set()

    @contextlib.contextmanager
    def of_job(self, job_id: str) -> Iterator[asyncio.Event]:
        """An event that is set whenever the job may have changed; clear it before you look."""
        channel, event = job_channel(job_id), asyncio.Event()
        self._events[channel].add(event)
        try:
            yield event
        finally:
            self._events[channel].discard(event)
            if not self._events[channel]:
                del self._events[channel]


async def happens(event: asyncio.Event, seconds: float) -> bool:
    """Whether the event is set within the time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
