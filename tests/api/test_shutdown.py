"""A server that stops while many follow: nobody loses or repeats a line."""

import asyncio

import httpx

from regatta_client.sse import Event, EventParser
from store.settings import Settings
from tests.api.parts import Job, ids, serving

FOLLOWERS = 50
LINES = 300


async def follow(url: str, path: str, last_id: str | None, seen: asyncio.Semaphore) -> list[Event]:
    """The events of one stream until the server closes it."""
    headers = {"accept": "text/event-stream"} | ({"last-event-id": last_id} if last_id else {})
    events: list[Event] = []
    parser = EventParser()
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as client,
        client.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200
        async for chunk in response.aiter_bytes():
            known = len(events)
            events += parser.feed(chunk)
            if known < LINES <= len(events):
                seen.release()
    return events


async def follow_all(url: str, path: str, last_ids: list[str | None], stop: object) -> list[list[Event]]:
    seen = asyncio.Semaphore(0)
    streams = [asyncio.create_task(follow(url, path, last_id, seen)) for last_id in last_ids]
    if callable(stop):
        for _ in streams:
            await seen.acquire()
        stop()
    return await asyncio.gather(*streams)


def test_fifty_open_streams_end_with_a_goodbye_and_go_on_after_the_restart(
    broker: object, settings: Settings, job: Job
) -> None:
    job.start()
    job.log(LINES)
    path = f"{job.path}/logs"
    with serving(settings) as server:

        def stop() -> None:
            server.server.should_exit = True

        before = asyncio.run(follow_all(server.url, path, [None] * FOLLOWERS, stop))
    assert {events[-1].type for events in before} == {"bye"}

    job.log(LINES)
    job.finish()
    with serving(settings) as server:
        last_ids: list[str | None] = [ids(events)[-1] for events in before]
        after = asyncio.run(follow_all(server.url, path, last_ids, None))
    assert {events[-1].type for events in after} == {"end"}
    whole = [f"1-{seq}" for seq in range(1, 2 * LINES + 1)]
    assert all(ids(first) + ids(second) == whole for first, second in zip(before, after, strict=True))
