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
from store.logs.lines import START, LogLine, Position, continuing_attempt
from store.logs.reading import read_logs
from store.logs.stream import LogStream, decode_entries, stream_key

_BATCHES = 200
_ARCHIVE_EVERY = 5
"""A quiet stream is checked against the archive once in so many polls: its broker may have lost lines."""
_ANSWER_S = 3.0
"""How much later than asked for the broker may answer before it counts as away."""


async def follow_logs(
    broker_url: str,
    stream: LogStream,
    archive: LogArchive,
    job_id: str,
    *,
    ended: asyncio.Event,
    after: Position = START,
    poll_s: float = 1.0,
) -> AsyncGenerator[list[LogLine], None]:
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
    catching_up, quiet = True, 0
    while True:
        over = ended.is_set()
        if catching_up or over:
            page = await asyncio.to_thread(read_logs, stream, archive, job_id, after=after, complete=over)
            if page.lines:
                after = page.position
                yield page.lines
                continue
            if over:
                return
        try:
            received = await _next_lines(client, job_id, after, ended, poll_s)
        except (RedisError, OSError):
            catching_up = True
            await _pause(ended, poll_s)
            continue
        lines = list(continuing_attempt(received, after))
        if lines:
            catching_up, quiet, after = False, 0, lines[-1].position
            yield lines
        elif received:  # the lines before these are, or will be, in the archive
            if catching_up:
                await _pause(ended, poll_s)
            catching_up = True
        else:
            quiet += 1
            catching_up = quiet % _ARCHIVE_EVERY == 0


async def _next_lines(
    client: redis.asyncio.Redis, job_id: str, after: Position, ended: asyncio.Event, poll_s: float
) -> list[LogLine]:
    """What the stream has behind `after`; nothing after `poll_s` seconds, or as soon as the job is over."""
    block = max(1, round(poll_s * 1000))
    read = asyncio.ensure_future(client.xread({stream_key(job_id): str(after)}, count=_BATCHES, block=block))
    end = asyncio.ensure_future(ended.wait())
    try:
        done, _ = await asyncio.wait(
            {read, end}, timeout=poll_s + _ANSWER_S, return_when=asyncio.FIRST_COMPLETED
        )
        if not done:
            raise TimeoutError("the broker does not answer")
        replies: Any = read.result() if read in done else []
    finally:
        read.cancel()
        end.cancel()
        await asyncio.gather(read, end, return_exceptions=True)
    return decode_entries(replies[0][1]) if replies else []


async def _pause(ended: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), seconds)
