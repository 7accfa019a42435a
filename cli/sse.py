"""Server-sent events, read as a browser's EventSource does: resumed with Last-Event-ID after every cut.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cli.client import Client, is_passing
from cli.errors import ApiError, ServerAway

END = "end"  # the type of the event after which nothing follows
SILENCE_S = 45.0  # three of the server's keep-alive comments
FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True)
class Event:
    """One event: its type (`message` when the server names none), data, and the id to resume after."""

    type: str
    data: str
    id: str


class EventParser:
    """Turns the bytes of a stream into events; bytes of an event that is not complete yet are kept back."""

    def __init__(self, last_id: str = "") -> None:
        self.last_id = last_id
        self.retry_s: float | None = None
        self._rest = b""
        self._type = ""
        self._data: list[str] = []
        self._id = last_id

    def feed(self, chunk: bytes) -> list[Event]:
        """The events that `chunk` completes."""
        *lines, self._rest = _split_lines(self._rest + chunk)
        return [event for line in lines if (event := self._take(line.decode("utf-8", "replace"))) is not None]

    def _take(self, line: str) -> Event | None:
        if not line:
            return self._complete()
        if line.startswith(":"):
            return None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_s = int(value) / 1000
        return None

    def _complete(self) -> Event | None:
        self.last_id = self._id
        event = Event(self._type or "message", "\n".join(self._data), self._id) if self._data else None
        self._type, self._data = "", []
        return event


def _split_lines(buffer: bytes) -> list[bytes]:
    # A carriage return at the very end may be half of a CR LF: it waits for the next bytes.
    held = b"\r" if buffer.endswith(b"\r") else b""
    lines = _LINE_END.split(buffer[: len(buffer) - len(held)])
    lines[-1] += held
    return lines


def follow(
    client: Client, path: str, params: Mapping[str, Any] | None = None, patience_s: float = 60.0
) -> Iterator[Event]:
    """Yield a stream's events until its `end` event (which is yielded too), over any number of connections.

    Raises:
        ServerAway: no event and no connection for `patience_s` seconds.
        ApiError: the server refuses the stream, for example because the job is unknown.
    """
    last_id, pause_s = "", FIRST_PAUSE_S
    give_up = time.monotonic() + patience_s
    while True:
        parser = EventParser(last_id)
        try:
            for event in _one_connection(client, path, params, parser):
                last_id, pause_s = parser.last_id, FIRST_PAUSE_S
                give_up = time.monotonic() + patience_s
                yield event
                if event.type == END:
                    return
            lost: ServerAway | ApiError = ServerAway(client.url, "the stream was closed")
        except (ServerAway, ApiError) as error:
            lost = error
        last_id = parser.last_id
        if not is_passing(lost) or time.monotonic() > give_up:
            raise lost
        time.sleep(parser.retry_s if parser.retry_s is not None else pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


def _one_connection(
    client: Client, path: str, params: Mapping[str, Any] | None, parser: EventParser
) -> Iterator[Event]:
    headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
    if parser.last_id:
        headers["Last-Event-ID"] = parser.last_id
    with client.stream(path, params, headers, read_timeout_s=SILENCE_S) as response:
        for chunk in response.iter_bytes():
            yield from parser.feed(chunk)
