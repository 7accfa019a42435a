"""Hints that something has changed, over Valkey's pub/sub.

They only save waiting: whoever listens also polls, and no error of an absent broker ever comes out of here.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import lru_cache
from types import TracebackType
from typing import Self

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

SCHEDULER = "scheduler"
_PREFIX = "wake:"
_PAUSE_S = 1.0
"""How long a broker that did not answer is left alone."""

_down_until: dict[str, float] = {}


def job_channel(job_id: str) -> str:
    """The channel of everything that happens to a job."""
    return f"job:{job_id}"


def wake(broker_url: str, *channels: str) -> None:
    """Tell the listeners of these channels to look; does nothing while the broker is away."""
    if time.monotonic() < _down_until.get(broker_url, 0.0):
        return
    try:
        with _client(broker_url).pipeline(transaction=False) as pipeline:
            for channel in channels:
                pipeline.publish(_PREFIX + channel, b"")
            pipeline.execute()
    except (RedisError, OSError):
        _down_until[broker_url] = time.monotonic() + _PAUSE_S


@lru_cache(maxsize=8)
def _client(broker_url: str) -> redis.Redis:
    return redis.Redis.from_url(
        broker_url, socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 1)
    )


async def hints(broker_url: str) -> AsyncIterator[str]:
    """The channels that are woken, all of them, as it happens. An absent broker is waited for."""
    client = redis.asyncio.Redis.from_url(
        broker_url, socket_connect_timeout=0.5, retry=AsyncRetry(NoBackoff(), 0)
    )
    async with client, client.pubsub(ignore_subscribe_messages=True) as pubsub:
        while True:
            try:
                await pubsub.psubscribe(f"{_PREFIX}*")
                async for message in pubsub.listen():
                    yield message["channel"].decode().removeprefix(_PREFIX)
            except (RedisError, OSError):
                await pubsub.aclose()
                await asyncio.sleep(_PAUSE_S)


class Listener:
    """Waits for hints on some channels. What comes between two waits ends the next one at once, and so does a
    new connection, before which hints may have been missed."""

    def __init__(self, broker_url: str, *channels: str) -> None:
        self._channels = [_PREFIX + channel for channel in channels]
        self._client = redis.Redis.from_url(
            broker_url, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 0)
        )
        self._pubsub = self._client.pubsub()
        self._connected = False

    def wait(self, timeout: float) -> bool:
        """True at the first hint, False after `timeout` seconds without one."""
        deadline = time.monotonic() + timeout
        try:
            self._connect()
            woken = self._pubsub.get_message(timeout=timeout) is not None
            while woken and self._pubsub.get_message(timeout=0.0) is not None:
                pass  # many hints are one
            return woken
        except (RedisError, OSError):
            self._connected = False
            time.sleep(max(0.0, deadline - time.monotonic()))
            return False

    def _connect(self) -> None:
        if not self._connected:
            self._pubsub.reset()
            self._pubsub.subscribe(*self._channels)
            self._connected = True

    def close(self) -> None:
        """Give the connection back."""
        self._pubsub.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
