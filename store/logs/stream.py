"""The live part of a job's log: a bounded Valkey stream of batches.

An entry's id is `<attempt>-<last seq of the batch>`. The server takes a batch only when it continues the
stream, so a batch that is sent again, or out of turn, changes nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from store.logs.lines import LogLine, Position, decode_lines, encode_lines

_KEEP_S = 3600
"""Time after its last line when a stream is dropped: by then the archive has everything."""

_APPEND = """
local top = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local attempt, first, last = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
if top[1] then
  local a, s = string.match(top[1][1], '(%d+)-(%d+)')
  a, s = tonumber(a), tonumber(s)
  if a > attempt or (a == attempt and (last <= s or first > s + 1)) then return {a, s} end
end
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], attempt .. '-' .. last, 'lines', ARGV[6])
redis.call('EXPIRE', KEYS[1], ARGV[5])
return {attempt, last}
"""


class LogStream:
    """Log streams of all jobs on one broker. Methods raise `redis.RedisError` while the broker is away."""

    def __init__(self, broker_url: str, *, entries: int = 1000, timeout_s: float = 3.0) -> None:
        self._client = redis.Redis.from_url(
            broker_url,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 1, (redis.ConnectionError,)),  # of a connection from before a restart
        )
        self._append = self._client.register_script(_APPEND)
        self._entries = entries

    def append(self, job_id: str, lines: Sequence[LogLine]) -> Position:
        """Add the next lines of an attempt and return where the stream ends now.

        Where it ends before the last of `lines`, the broker has lost some: send again from there. Where it is
        at a later attempt, these lines are too late.
        """
        first, last = lines[0], lines[-1]
        numbers = (first.attempt, first.seq, last.seq, self._entries, _KEEP_S)
        end: Any = self._append(keys=[stream_key(job_id)], args=[*numbers, encode_lines(lines)])
        return Position(*end)

    def position(self, job_id: str) -> Position | None:
        """Where the stream ends, None when there is none."""
        entries: Any = self._client.xrevrange(stream_key(job_id), count=1)
        return entry_position(entries[0][0]) if entries else None

    def read(self, job_id: str, after: Position, count: int = 100) -> list[LogLine]:
        """Lines of at most `count` batches that end behind `after`; some may lie before it."""
        entries: Any = self._client.xrange(stream_key(job_id), min=f"({after}", count=count)
        return decode_entries(entries)

    def tail(self, job_id: str, batches: int) -> list[LogLine]:
        """Lines of the last batches."""
        entries: Any = self._client.xrevrange(stream_key(job_id), count=batches)
        return decode_entries(reversed(entries))

    def delete(self, job_id: str) -> None:
        """Drop the job's stream."""
        self._client.delete(stream_key(job_id))

    def close(self) -> None:
        """Give the connections back."""
        self._client.close()


def stream_key(job_id: str) -> str:
    """Name of a job's stream on the broker."""
    return f"log:{job_id}"


def entry_position(entry_id: bytes) -> Position:
    """Position of the last line of an entry."""
    attempt, _, seq = entry_id.decode().partition("-")
    return Position(int(attempt), int(seq))


def decode_entries(entries: Iterable[Any]) -> list[LogLine]:
    """The lines of stream entries, in order."""
    return [
        line
        for entry_id, fields in entries
        for line in decode_lines(entry_position(entry_id).attempt, fields[b"lines"])
    ]
