"""The log of a job: as JSON, as text, and followed live."""

import httpx
import pytest

from store.logs import Position
from store.settings import Settings
from tests.api.parts import Job, data, ids, places, serving, stream, streaming, take


@pytest.fixture
def running(broker: object, job: Job) -> Job:
    job.start()
    return job


def lines(answer: httpx.Response) -> list[str]:
    return [item["line"] for item in answer.json()["items"]]


def numbered(first: int, last: int, attempt: int = 1) -> list[str]:
    return [f"line {attempt}-{n}" for n in range(first, last + 1)]


def test_a_page_of_the_log(client: httpx.Client, running: Job) -> None:
    running.log(3)
    page = client.get(f"{running.path}/logs").json()
    assert page["next_cursor"] is None
    assert page["items"][0] == {
        "cursor": "1-1",
        "time": "1970-01-01T00:00:01.000Z",
        "attempt": 1,
        "rank": 0,
        "line": "line 1-1",
    }


def test_pages_hold_each_line_once(client: httpx.Client, running: Job) -> None:
    running.log(25)
    seen, query = [], {"limit": 10}
    while True:
        page = client.get(f"{running.path}/logs", params=query).json()
        seen += [item["line"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == numbered(1, 25)


def test_a_page_can_be_full_of_lines_of_one_rank(client: httpx.Client, running: Job) -> None:
    for rank in (0, 1, 0, 1):
        running.log(5, rank)
    answer = client.get(f"{running.path}/logs", params={"rank": 1, "limit": 7})
    assert lines(answer) == numbered(6, 10) + numbered(16, 17)
    rest = client.get(f"{running.path}/logs", params={"rank": 1, "cursor": answer.json()["next_cursor"]})
    assert lines(rest) == numbered(18, 20)
    assert rest.json()["next_cursor"] is None


def test_the_tail_of_the_log(client: httpx.Client, running: Job) -> None:
    running.log(20)
    assert lines(client.get(f"{running.path}/logs?tail=3")) == numbered(18, 20)
    assert lines(client.get(f"{running.path}/logs?tail=30")) == numbered(1, 20)
    assert lines(client.get(f"{running.path}/logs?tail=3&after=1-5&limit=2")) == numbered(6, 7)


def test_the_log_as_plain_text(client: httpx.Client, running: Job) -> None:
    running.log(5000)
    answer = client.get(f"{running.path}/logs", headers={"accept": "text/plain"})
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.text.splitlines() == numbered(1, 5000)
    tail = client.get(f"{running.path}/logs?tail=2", headers={"accept": "text/plain"})
    assert tail.text == "line 1-4999\nline 1-5000\n"


def test_an_empty_log_is_empty(client: httpx.Client, running: Job) -> None:
    assert client.get(f"{running.path}/logs").json() == {"items": [], "next_cursor": None}
    assert client.get(f"{running.path}/logs?tail=5").json()["items"] == []
    assert client.get(f"{running.path}/logs", headers={"accept": "text/plain"}).text == ""


def test_the_log_is_readable_while_the_broker_is_away(client: httpx.Client, job: Job) -> None:
    job.start()
    job.archive.append(job.id, job.lines(4))
    assert lines(client.get(f"{job.path}/logs")) == numbered(1, 4)
    assert lines(client.get(f"{job.path}/logs?tail=2")) == numbered(3, 4)


@pytest.mark.parametrize(
    ("query", "headers", "place"),
    [
        ({"after": "7"}, {}, ("query", "after")),
        ({"after": "1-1", "cursor": "1-1"}, {}, ("query", "cursor")),
        ({"tail": "0"}, {}, ("query", "tail")),
        ({"rank": "-1"}, {}, ("query", "rank")),
        ({"tails": "3"}, {}, ("query", "tails")),
        ({}, {"last-event-id": "7"}, ("header", "Last-Event-ID")),
    ],
)
def test_a_bad_position_is_refused_and_named(
    client: httpx.Client, running: Job, query: dict[str, str], headers: dict[str, str], place: tuple[str, str]
) -> None:
    assert places(client.get(f"{running.path}/logs", params=query, headers=headers)) == [place]


def test_the_log_is_followed_from_its_start_to_the_end_of_the_job(client: httpx.Client, running: Job) -> None:
    running.log(3)
    with streaming(client, f"{running.path}/logs") as events:
        assert [data(event)["line"] for event in take(events, 3)] == numbered(1, 3)
        running.log(2)
        assert [data(event)["line"] for event in take(events, 2)] == numbered(4, 5)
        running.log(1)
        running.finish()
        rest = list(events)
    assert [event.type for event in rest] == ["log", "end"]
    assert rest[0].id == "1-6"
    assert data(rest[1])["status"] == "succeeded"


def test_following_can_begin_at_the_tail_and_hold_one_rank(client: httpx.Client, running: Job) -> None:
    running.log(4, rank=0)
    running.log(4, rank=1)
    running.finish()
    assert ids(stream(client, f"{running.path}/logs?tail=2")) == ["1-7", "1-8"]
    assert ids(stream(client, f"{running.path}/logs?rank=0")) == ["1-1", "1-2", "1-3", "1-4"]
    assert ids(stream(client, f"{running.path}/logs?rank=0&tail=1")) == ["1-4"]


def test_a_cut_stream_goes_on_without_gap_or_repeat(client: httpx.Client, running: Job) -> None:
    seen: list[str] = []
    for count in (1, 30, 7):
        running.log(20)
        headers = {"last-event-id": seen[-1]} if seen else {}
        with streaming(client, f"{running.path}/logs?tail=1000", headers=headers) as events:
            seen += ids(take(events, min(count, 20)))
    running.finish()
    seen += ids(stream(client, f"{running.path}/logs", headers={"last-event-id": seen[-1]}))
    assert seen == [f"1-{n}" for n in range(1, 61)]


def test_a_follower_sees_the_lines_of_a_later_attempt(client: httpx.Client, running: Job) -> None:
    running.log(2)
    client.post(f"{running.path}/cancel")
    running.finish()
    client.post(f"{running.path}/retry")
    with streaming(client, f"{running.path}/logs") as events:
        take(events, 2)
        running.start()
        running.log(2)
        assert ids(take(events, 2)) == ["2-1", "2-2"]
        running.finish()
        assert next(events).type == "end"


def test_lines_that_only_the_archive_has_reach_a_follower(client: httpx.Client, running: Job) -> None:
    with streaming(client, f"{running.path}/logs") as events:
        running.archive.append(running.id, running.lines(2))
        running.log(1)
        assert ids(take(events, 3)) == ["1-1", "1-2", "1-3"]


def test_following_works_while_the_broker_is_away(client: httpx.Client, job: Job) -> None:
    job.start()
    job.archive.append(job.id, job.lines(2))
    with streaming(client, f"{job.path}/logs") as events:
        assert ids(take(events, 2)) == ["1-1", "1-2"]
        job.archive.append(job.id, job.lines(1))
        assert ids(take(events, 1)) == ["1-3"]
        job.finish()
        assert next(events).type == "end"


def test_a_follower_goes_on_after_a_restart_of_the_server(settings: Settings, running: Job) -> None:
    running.log(10)
    with (
        serving(settings) as server,
        httpx.Client(base_url=server.url) as first,
        streaming(first, f"{running.path}/logs") as events,
    ):
        seen = take(events, 4)
    running.log(10)
    running.finish()
    with serving(settings) as server, httpx.Client(base_url=server.url) as second:
        seen += stream(second, f"{running.path}/logs", headers={"last-event-id": seen[-1].id})
    assert ids(seen) == [str(Position(1, n)) for n in range(1, 21)]
