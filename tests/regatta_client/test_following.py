"""Streams are resumed where they were cut, and given up when nothing comes any more."""

import asyncio
import json
from contextlib import closing

import pytest

from regatta_client.connection import AsyncConnection, Connection
from regatta_client.errors import NotFoundError, ServerAwayError
from regatta_client.following import follow, follow_async, states
from tests.cli.scripted_server import answer, serving, stream


def test_a_cut_stream_is_resumed_after_the_last_whole_event() -> None:
    first = stream(b"retry: 1\nid: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: hal")
    second = stream(b"id: 3\ndata: half\n\nevent: end\ndata: {}\n\n")
    with serving(first, second) as server, closing(Connection(server.url)) as client:
        events = list(follow(client, "/jobs/j/logs", {"tail": 5}))
    assert [event.data for event in events] == ["a", "b", "half", "{}"]
    assert [headers.get("last-event-id") for _, headers in server.requests] == [None, "2"]


def test_a_server_that_restarts_is_asked_again() -> None:
    away = answer(503, b"{}")
    with (
        serving(away, stream(b"id: 1\ndata: a\n\nevent: end\ndata: {}\n\n")) as server,
        closing(Connection(server.url)) as client,
    ):
        assert [event.data for event in follow(client, "/x")] == ["a", "{}"]


def test_a_refusal_is_final() -> None:
    missing = answer(404, b'{"title": "No such job", "detail": "no job j"}', "application/problem+json")
    with (
        serving(missing) as server,
        closing(Connection(server.url)) as client,
        pytest.raises(NotFoundError, match="no job j"),
    ):
        list(follow(client, "/x"))
    assert len(server.requests) == 1


def test_patience_with_a_silent_address_ends() -> None:
    with serving(answer(200, b"{}")) as server:
        url = server.url
    with (
        closing(Connection(url)) as client,
        pytest.raises(ServerAwayError, match="no Regatta server answers at"),
    ):
        list(follow(client, "/x", patience_s=0))


def test_a_cut_stream_is_resumed_under_asyncio_too() -> None:
    first = stream(b"retry: 1\nid: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: hal")
    second = stream(b"id: 3\ndata: half\n\nevent: end\ndata: {}\n\n")

    async def followed(url: str) -> list[str]:
        connection = AsyncConnection(url)
        try:
            return [event.data async for event in follow_async(connection, "/jobs/j/logs")]
        finally:
            await connection.close()

    with serving(first, second) as server:
        assert asyncio.run(followed(server.url)) == ["a", "b", "half", "{}"]
    assert [headers.get("last-event-id") for _, headers in server.requests] == [None, "2"]


def test_states_come_until_the_job_has_ended_and_over_a_restart() -> None:
    queued, ended = (answer(200, json.dumps({"status": word}).encode()) for word in ("queued", "failed"))
    with serving(queued, answer(503, b"{}"), ended) as server, closing(Connection(server.url)) as client:
        found = list(states(lambda: client.request("GET", "/jobs/j", repeat=False), poll_s=0))
    assert [state["status"] for state in found] == ["queued", "failed"]
