"""The log of a job as followers read it."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from sqlalchemy.exc import DBAPIError

from api.feeds import Chunk, Feed
from api.hints import happens
from api.histories import end_of
from api.schemas.histories import LogLine
from api.service import Service
from api.sse import encode
from store import logs
from store.logs import Position

READ_LINES = 1000


class LogSource:
    """One blocking reader of the live stream; what it brings is encoded once for all followers."""

    def __init__(self, service: Service, job_id: str, rank: int | None) -> None:
        self._service = service
        self._job_id = job_id
        self._rank = rank
        self._head: Position | None = None
        self._end: dict[str, Any] | None = None

    def read(self, position: Any) -> Chunk:
        end = self._end
        if self._head is not None and position >= self._head:
            return Chunk(b"", position, end)
        page = logs.read_logs(
            self._service.log_stream,
            self._service.log_archive,
            self._job_id,
            after=position,
            limit=READ_LINES - position.seq % READ_LINES,  # those that lag meet here, and share what follows
            rank=self._rank,
            complete=end is not None,
        )
        return Chunk(self._encoded(page.lines), page.position, end if page.position == position else None)

    async def watch(self, feed: Feed) -> None:
        service, job_id = self._service, self._job_id
        page = await asyncio.to_thread(logs.tail_logs, service.log_stream, service.log_archive, job_id, 1)
        head = self._head = page.position
        await feed.announce()  # a follower may have looked before the last line of that page came
        ended = asyncio.Event()
        job_end = asyncio.create_task(self._wait_for_end(ended))
        following = logs.follow_logs(
            service.settings.broker_url,
            service.log_stream,
            service.log_archive,
            job_id,
            ended=ended,
            after=head,
            poll_s=service.settings.poll_s,
        )
        try:
            async with aclosing(following) as batches:
                async for lines in batches:
                    feed.offer(head, Chunk(self._encoded(lines), lines[-1].position))
                    head = self._head = lines[-1].position
                    await feed.announce()
            self._end = await job_end
        finally:
            job_end.cancel()

    async def _wait_for_end(self, ended: asyncio.Event) -> dict[str, Any]:
        with self._service.hints.of_job(self._job_id) as changed:
            while True:
                changed.clear()
                try:
                    end = await asyncio.to_thread(self._read_end)
                except DBAPIError:
                    end = None  # the database is away: the lines go on, and the job's end can wait
                if end is not None:
                    ended.set()
                    return end
                await happens(changed, self._service.settings.poll_s)

    def _read_end(self) -> dict[str, Any] | None:
        with self._service.database.reading() as session:
            return end_of(session, self._job_id)

    def _encoded(self, lines: Iterable[logs.LogLine]) -> bytes:
        return b"".join(
            encode("log", LogLine.of(line).model_dump(), str(line.position))
            for line in lines
            if self._rank in (None, line.rank)
        )
