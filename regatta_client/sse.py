"""Server-sent events, parsed as a browser's EventSource does.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import re
from dataclasses import dataclass

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
