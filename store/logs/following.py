"""Following a job's log as it grows."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from store.logs.archive import LogArchive
from store.logs.lines import START, LogLine, Position, continuing
from store.logs.reading import read_logs
from store.logs.stream import LogStream, decode_entries, stream_key

_BATCHES = 200
_ARCHIVE_EVERY = 5
"""A quiet stream is checked against the archive once in so many polls."""


async def follow_logs(
    broker_url: str,
    stream: LogStream,
    archive: LogArchive,
    job_id: str,
    *,
    ended: asyncio.Event,
    after: Position = START,
    poll_s: float = 1.0,
) -> AsyncGenerator[list[LogLine]]:
    """Batches of lines behind `after` as they come, without gap or repeat, until the job is over.

    One blocking reader on the broker; while the broker is away, or has lost lines, the archive is polled.

    Args:
        ended: set it once the job is in a terminal state; what is left is delivered, then the iterator ends.
    """
    client = redis.asyncio.Redis.from_url(broker_url, socket_connect_timeout=2.0, retry=Retry(NoBackoff(), 0))
    try:
        async with aclosing(_follow(client, stream, archive, job_id, ended, after, poll_s)) as batches:
            async for batch in batches:
                yield batch
    finally:
        await client.aclose()


async def _follow(
    client: redis.asyncio.Redis,
    stream: LogStream,
    archive: LogArchive,
    job_id: str,
    ended: asyncio.Event,
    after: Position,
    poll_s: float,
) -> AsyncGenerator[list[LogLine], None]:
    quiet = _ARCHIVE_EVERY  # begin with what is there already
    while True:
        over = ended.is_set()
        live: list[LogLine] = []
        if quiet < _ARCHIVE_EVERY and not over:
            live, quiet = await _read_live(client, job_id, after, ended, poll_s, quiet)
        if not live and (over or quiet >= _ARCHIVE_EVERY):
            page = await asyncio.to_thread(read_logs, stream, archive, job_id, after=after, complete=over)
            live = page.lines
            if not live and over:
                return
            if not live and quiet > _ARCHIVE_EVERY:
                await _pause(ended, poll_s)
            quiet = 0 if not live else quiet
        if live:
            after = live[-1].position
            yield live


async def _read_live(
    client: redis.asyncio.Redis, job_id: str, after: Position, ended: asyncio.Event, poll_s: float, quiet: int
) -> tuple[list[LogLine], int]:
    """Lines that continue the log, and how long the stream has been of no use (in polls)."""
    read = asyncio.ensure_future(
        client.xread({stream_key(job_id): str(after)}, count=_BATCHES, block=int(poll_s * 1000))
    )
    end = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait({read, end}, return_when=asyncio.FIRST_COMPLETED)
        if not read.done():
            return [], quiet
        replies: Any = read.result()
    except (RedisError, OSError):
        return [], _ARCHIVE_EVERY + 1
    finally:
        read.cancel()
        end.cancel()
    if not replies:
        return [], quiet + 1
    lines = list(continuing(decode_entries(replies[0][1]), after))
    return lines, 0 if lines else _ARCHIVE_EVERY + 1


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), seconds)
