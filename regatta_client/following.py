"""Streams and states that are followed over any number of connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar

from regatta_client.connection import AsyncConnection, Connection
from regatta_client.errors import ApiError, RegattaError, ServerAwayError, is_passing
from regatta_client.sse import Event, EventParser

T = TypeVar("T")
END = "end"
"""The type of the event after which nothing follows."""
TERMINAL = ("succeeded", "failed", "cancelled")
SILENCE_S = 45.0  # three of the server's keep-alive comments
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0
PATIENCE_S = 60.0


class Patience:
    """How long to go on while nothing comes.

    Args:
        limit_s: longest time without success.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.progress()

    def progress(self) -> None:
        """Something has come."""
        self._give_up = time.monotonic() + self._limit_s
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, error: RegattaError, asked_s: float | None = None) -> float:
        """How long to rest before the next try. Raises the error when it will not pass, or took too long."""
        if not is_passing(error) or time.monotonic() > self._give_up:
            raise error
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 2, LONGEST_PAUSE_S)
        return pause_s if asked_s is None else asked_s


def follow(
    connection: Connection,
    path: str,
    params: Mapping[str, Any] | None = None,
    patience_s: float = PATIENCE_S,
) -> Iterator[Event]:
    """A stream's events until its `end` event, which is yielded too.

    Raises:
        ServerAwayError: no event and no connection for `patience_s` seconds.
        ApiError: the server refuses the stream, for example because the job is unknown.
    """
    last_id, patience = "", Patience(patience_s)
    while True:
        parser = EventParser(last_id)
        lost: RegattaError = ServerAwayError(connection.url, "the stream was closed")
        try:
            with connection.stream(path, params, _headers(last_id), SILENCE_S) as response:
                for chunk in response.iter_bytes():
                    for event in parser.feed(chunk):
                        patience.progress()
                        yield event
                        if event.type == END:
                            return
        except (ServerAwayError, ApiError) as error:
            lost = error
        last_id = parser.last_id
        time.sleep(patience.pause_s(lost, parser.retry_s))


async def follow_async(
    connection: AsyncConnection,
    path: str,
    params: Mapping[str, Any] | None = None,
    patience_s: float = PATIENCE_S,
) -> AsyncIterator[Event]:
    """See `follow`."""
    last_id, patience = "", Patience(patience_s)
    while True:
        parser = EventParser(last_id)
        lost: RegattaError = ServerAwayError(connection.url, "the stream was closed")
        try:
            async with connection.stream(path, params, _headers(last_id), SILENCE_S) as response:
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        patience.progress()
                        yield event
                        if event.type == END:
                            return
        except (ServerAwayError, ApiError) as error:
            lost = error
        last_id = parser.last_id
        await asyncio.sleep(patience.pause_s(lost, parser.retry_s))


def _headers(last_id: str) -> dict[str, str]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    return headers | ({"Last-Event-ID": last_id} if last_id else {})


def patiently(get: Callable[[], T], patience: Patience) -> T:
    """What a call gives, however often it takes."""
    while True:
        try:
            return get()
        except RegattaError as error:
            time.sleep(patience.pause_s(error))


def states(
    get: Callable[[], dict[str, Any]], poll_s: float = 0.5, patience_s: float = PATIENCE_S
) -> Iterator[dict[str, Any]]:
    """A job's states until it has ended, the last one too; many are alike.

    Lives through a server that is away for up to `patience_s` seconds, but for one that is away at first.
    """
    state = get()
    patience = Patience(patience_s)
    while True:
        yield state
        if state["status"] in TERMINAL:
            return
        time.sleep(poll_s)
        state = patiently(get, patience)
        patience.progress()
