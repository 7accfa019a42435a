"""Hints over pub/sub."""

import asyncio
import os
import signal
import threading

import redis

from store.broker import Broker, ensure_broker
from store.settings import Settings
from store.wake import SCHEDULER, Listener, hints, job_channel, wake
from tests.store.waiting import wait_until

ABSENT = "unix:///nonexistent/v.sock?db=0"


def connected(broker: Broker, *channels: str) -> Listener:
    listener = Listener(broker.url, *channels)
    assert listener.wait(10), "a new connection counts as a hint"
    while listener.wait(0.05):
        pass  # each channel is confirmed on its own
    return listener


def test_a_hint_ends_the_wait_for_its_channel_and_no_other(broker: Broker) -> None:
    with connected(broker, SCHEDULER) as scheduler, connected(broker, job_channel("1")) as job:
        wake(broker.url, SCHEDULER)
        assert scheduler.wait(10)
        assert not job.wait(0.05)


def test_hints_between_two_waits_are_one_hint(broker: Broker) -> None:
    with connected(broker, SCHEDULER, job_channel("1")) as listener:
        for _ in range(3):
            wake(broker.url, SCHEDULER, job_channel("1"))
        with redis.Redis.from_url(broker.url) as client:
            client.ping()  # answered only after the server has sent the hints on
        assert listener.wait(10)
        assert not listener.wait(0.05)


def test_a_hint_ends_a_wait_that_has_begun(broker: Broker) -> None:
    with connected(broker, SCHEDULER) as listener:
        sender = threading.Timer(0.05, wake, (broker.url, SCHEDULER))
        sender.start()
        assert listener.wait(20)
        sender.join()


def test_an_absent_broker_is_no_error() -> None:
    wake(ABSENT, SCHEDULER)
    with Listener(ABSENT, SCHEDULER) as listener:
        assert not listener.wait(0.01)


def test_a_listener_finds_a_restarted_broker_again(settings: Settings) -> None:
    broker = ensure_broker(settings.data_dir)
    with connected(broker, SCHEDULER) as listener:
        os.kill(broker.pid, signal.SIGKILL)
        wait_until(lambda: not broker.is_alive())
        assert not listener.wait(0.01)
        broker = ensure_broker(settings.data_dir)
        try:
            wait_until(lambda: listener.wait(0.05))
            wait_until(lambda: wake(broker.url, SCHEDULER) or listener.wait(0.05))
        finally:
            broker.stop()


def test_all_hints_can_be_listened_to_at_once(broker: Broker) -> None:
    async def collect() -> list[str]:
        heard: list[str] = []

        async def listen() -> None:
            async for channel in hints(broker.url):
                heard.append(channel)

        listening = asyncio.create_task(listen())
        async with asyncio.timeout(20):
            while not {SCHEDULER, job_channel("7")} <= set(heard):
                await asyncio.to_thread(wake, broker.url, SCHEDULER, job_channel("7"))
                await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        return heard

    assert set(asyncio.run(collect())) == {SCHEDULER, job_channel("7")}
