"""Followers of a job's growing histories (events, metrics, logs).

One feed per history and process, shared by its followers. A follower holds nothing but its position; it asks
the feed for what comes after that position. Equal questions are asked of the source once and answered to all
with the same encoded bytes, so followers that are up to date cost one read together, whatever their number;
one that lags, or comes back after a cut, asks from an older position. Nothing can be skipped or repeated, for
positions are the history's own.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from api.hints import happens
from api.sse import BYE, OPENING, PING, encode

logger = logging.getLogger(__name__)

CACHE_BYTES = 8 * 1024 * 1024
LINGER_S = 0.03
"""Pause after waking followers, so that what comes in quick succession is sent together."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What follows a position.

    Attributes:
        data: encoded events.
        last: the position behind them.
        end: what the `end` event says, when nothing can follow any more.
    """

    data: bytes
    last: Hashable
    end: dict[str, Any] | None = None


class Source(Protocol):
    """One history of one job."""

    def read(self, position: Hashable) -> Chunk:
        """The next part behind `position`, with `last == position` when there is nothing yet. May block."""
        ...

    async def watch(self, feed: "Feed") -> None:
        """Announces to the feed whenever there may be more to read, until nothing can follow."""
        ...


class Feed:
    """Answers the followers of one source."""

    def __init__(self, source: Source) -> None:
        self.followers = 0
        self.news = asyncio.Event()
        self.over = False
        self.broken = False
        self._source = source
        self._parts: OrderedDict[Hashable, asyncio.Future[Chunk]] = OrderedDict()
        self._watcher = asyncio.create_task(self._watch())

    async def read(self, position: Hashable) -> Chunk:
        part = self._parts.get(position)
        if part is None:
            part = self._parts[position] = asyncio.create_task(self._load(position))
        return await asyncio.shield(part)

    async def _load(self, position: Hashable) -> Chunk:
        keep = False
        try:
            chunk = await asyncio.to_thread(self._source.read, position)
            keep = chunk.last != position and chunk.end is None
        except Exception:
            logger.exception("a history could not be read")
            raise
        finally:
            if not keep:
                self._parts.pop(position, None)
        self._forget_old_parts()
        return chunk

    def offer(self, position: Hashable, chunk: Chunk) -> None:
        """Keeps a chunk that the source's watcher has at hand, so that no one has to read it."""
        part: asyncio.Future[Chunk] = asyncio.get_running_loop().create_future()
        part.set_result(chunk)
        self._parts[position] = part
        self._forget_old_parts()

    def _forget_old_parts(self) -> None:
        done = [(position, part) for position, part in self._parts.items() if part.done()]
        size = sum(len(part.result().data) for _, part in done)
        for position, part in done:
            if size <= CACHE_BYTES:
                break
            size -= len(part.result().data)
            del self._parts[position]

    async def announce(self) -> None:
        """Wakes all followers."""
        self.wake()
        await asyncio.sleep(LINGER_S)

    def wake(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()

    async def _watch(self) -> None:
        try:
            await self._source.watch(self)
        except Exception:
            logger.exception("a history cannot be followed any more")
            self.broken = True
        self.over = True
        self.wake()

    def close(self) -> None:
        self._watcher.cancel()


class Hub:
    """The feeds of this process."""

    def __init__(self, ping_s: float) -> None:
        self.ping_s = ping_s
        self.closing = False
        self._feeds: dict[Hashable, Feed] = {}

    @asynccontextmanager
    async def join(self, key: Hashable, make_source: Callable[[], Source]) -> AsyncIterator[Feed]:
        """The feed of `key` for the time of the block; the last follower to leave closes it."""
        feed = self._feeds.get(key)
        if feed is None or feed.over:  # what was over may go on: a failed job can be retried
            feed = self._feeds[key] = Feed(make_source())
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if feed.followers == 0:
                feed.close()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]

    def close(self) -> None:
        """Ends all streams: each follower says goodbye at once."""
        self.closing = True
        for feed in self._feeds.values():
            feed.wake()

    def __len__(self) -> int:
        return len(self._feeds)

    def followers(self) -> dict[str, int]:
        """How many followers each kind of history has; the kind is the first word of a feed's key."""
        counts: Counter[str] = Counter()
        for key, feed in list(self._feeds.items()):
            counts[str(key[0] if isinstance(key, tuple) else key)] += feed.followers
        return dict(counts)


async def follow(
    hub: Hub, key: Hashable, make_source: Callable[[], Source], position: Hashable
) -> AsyncGenerator[bytes]:
    """The encoded events behind `position`, live until the history has ended or the server stops.

    The last event is `end` (nothing will follow) or `bye` (connect again and go on from the last id: the
    server stops, or cannot read on for the moment).
    """
    yield OPENING
    async with hub.join(key, make_source) as feed:
        while not (hub.closing or feed.broken):
            news = feed.news
            try:
                chunk = await feed.read(position)
            except Exception:  # it is in the log, once for all followers
                break
            if chunk.data:
                yield chunk.data
            if chunk.end is not None:
                yield encode("end", chunk.end)
                return
            if chunk.last == position and not await happens(news, hub.ping_s):
                yield PING
            position = chunk.last
    yield BYE
