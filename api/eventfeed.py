"""The events of all jobs as followers read them."""

import asyncio
from typing import Any

from api.feeds import Chunk, Feed
from api.histories import STREAM_ROWS
from api.schemas.histories import Event
from api.service import Service
from api.sse import encode
from store.feed import Filter, Horizon, all_events


class EventSource:
    """What matches a filter, as far as the horizon; it has no end."""

    def __init__(self, service: Service, wanted: Filter) -> None:
        self._service = service
        self._wanted = wanted
        self._horizon = Horizon(service.database)

    def read(self, position: Any) -> Chunk:
        horizon = self._horizon.look()
        with self._service.database.reading() as session:
            rows = all_events(session, self._wanted, position, horizon, STREAM_ROWS)
        data = b"".join(encode("event", Event.of(row).model_dump(mode="json"), str(row.id)) for row in rows)
        # behind a part that is not full nothing matches up to the horizon: it need not be looked at again
        last = rows[-1].id if len(rows) == STREAM_ROWS else max(position, horizon)
        return Chunk(data, last)

    async def watch(self, feed: Feed) -> None:
        while True:
            await feed.announce()
            await asyncio.sleep(self._service.settings.poll_s)
