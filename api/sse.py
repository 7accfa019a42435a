"""Server-sent events: how one event looks on the wire, and the response that carries them.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from api.limits import StreamLimit

RETRY_MS = 500
PING = b": ping\n\n"
OPENING = f": open\nretry: {RETRY_MS}\n\n".encode()
BYE = f"event: bye\nretry: {RETRY_MS}\ndata: {{}}\n\n".encode()


def encode(event: str, data: Any, event_id: str | None = None) -> bytes:
    """One event; `data` is written as JSON on one line, so it needs no splitting."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    head = f"id: {event_id}\n" if event_id is not None else ""
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


class EventStreamResponse(StreamingResponse):
    """Streams encoded events. A client may have only so many streams open: more are answered with 429."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit: StreamLimit = scope["app"].state.stream_limit
        async with aclosing(self.events):  # its feed is left as soon as the client is gone
            with limit.opened(scope):
                await super().__call__(scope, receive, send)
