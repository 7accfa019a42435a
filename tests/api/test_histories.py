"""Events and metrics of a job: pages, streams, and going on after a cut."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from store.reasons import Reason
from store.states import Status
from tests.api.parts import Job, data, ids, places, stream, streaming, take


def pages(client: httpx.Client, path: str, **query: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    while True:
        page = client.get(path, params=query).json()
        items += page["items"]
        if page["next_cursor"] is None:
            return items
        query["cursor"] = page["next_cursor"]


def test_events_tell_the_history_of_a_job(client: httpx.Client, job: Job) -> None:
    job.start()
    job.say({"t": 5.0, "type": "warning", "msg": "fp16 runs as fp32", "hint": "Use bf16."})
    job.finish()
    events = client.get(f"{job.path}/events").json()["items"]
    assert [event["to_status"] for event in events] == ["queued", "starting", "running", None, "succeeded"]
    assert events[3]["type"] == "warning"
    assert events[3]["message"] == "fp16 runs as fp32"
    assert events[3]["time"] == "1970-01-01T00:00:05.000Z"


def test_pages_of_metrics_hold_each_step_once(client: httpx.Client, job: Job) -> None:
    job.start()
    job.step(*range(1, 8))
    assert [item["step"] for item in pages(client, f"{job.path}/metrics", limit=3)] == list(range(1, 8))


def test_metrics_can_be_read_from_a_position_on(client: httpx.Client, job: Job) -> None:
    job.start()
    job.step(1, 2, 3)
    second = client.get(f"{job.path}/metrics").json()["items"][1]
    rest = client.get(f"{job.path}/metrics", params={"after": second["id"]}).json()
    assert [item["step"] for item in rest["items"]] == [3]
    assert rest["next_cursor"] is None


def test_many_metrics_are_thinned_to_what_stands_out(client: httpx.Client, job: Job) -> None:
    job.start()
    job.say(
        *({"t": n, "type": "metric", "step": n, "loss": 9.0 if n == 777 else 1 / n} for n in range(1, 1001))
    )
    page = client.get(f"{job.path}/metrics", params={"kind": "train", "points": 100}).json()
    losses = {item["step"]: item["values"]["loss"] for item in page["items"]}
    assert page["thinned"]
    assert page["next_cursor"] is None
    assert 50 < len(losses) <= 102
    assert losses[1] == 1
    assert losses[777] == 9
    assert losses[1000] == 0.001
    after = page["items"][-1]["id"]
    assert client.get(f"{job.path}/metrics", params={"after": after}).json()["items"] == []
    whole = client.get(f"{job.path}/metrics", params={"kind": "train", "points": 1000}).json()
    assert (len(whole["items"]), whole["thinned"]) == (1000, False)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ({"points": 100}, "kind"),
        ({"points": 100, "kind": "train", "after": 3}, "points"),
        ({"points": 100, "kind": "train", "follow": "true"}, "points"),
        ({"points": 9, "kind": "train"}, "points"),
    ],
)
def test_thinned_metrics_are_of_one_kind_and_whole(
    client: httpx.Client, job: Job, query: dict[str, Any], place: str
) -> None:
    assert places(client.get(f"{job.path}/metrics", params=query)) == [("query", place)]


def test_metrics_of_one_kind(client: httpx.Client, job: Job) -> None:
    job.start()
    job.step(1, 2)
    job.say({"t": 3.0, "type": "eval", "step": 2, "eval_loss": 2.5})
    assert [item["values"] for item in client.get(f"{job.path}/metrics?kind=eval").json()["items"]] == [
        {"eval_loss": 2.5}
    ]
    assert len(client.get(f"{job.path}/metrics?kind=train").json()["items"]) == 2


@pytest.mark.parametrize(
    ("query", "headers", "place"),
    [
        ({"after": "x"}, {}, ("query", "after")),
        ({"after": "-1"}, {}, ("query", "after")),
        ({"after": str(2**63)}, {}, ("query", "after")),
        ({"after": "1", "cursor": "1"}, {}, ("query", "cursor")),
        ({"kind": "test"}, {}, ("query", "kind")),
        ({}, {"last-event-id": "1-2"}, ("header", "Last-Event-ID")),
        ({}, {"last-event-id": "9" * 30}, ("header", "Last-Event-ID")),
        ({}, {"last-event-id": "0" * 20 + "9" * 30}, ("header", "Last-Event-ID")),
        ({}, {"last-event-id": "0" * 5000}, ("header", "Last-Event-ID")),
    ],
)
def test_a_bad_position_is_refused_and_named(
    client: httpx.Client, job: Job, query: dict[str, str], headers: dict[str, str], place: tuple[str, str]
) -> None:
    assert places(client.get(f"{job.path}/metrics", params=query, headers=headers)) == [place]


def test_what_is_not_on_offer_is_a_406(client: httpx.Client, job: Job) -> None:
    answer = client.get(f"{job.path}/events", headers={"accept": "image/png"})
    assert answer.status_code == 406
    assert "application/json, text/event-stream" in answer.json()["detail"]


def test_follow_says_what_accept_does_not(client: httpx.Client, job: Job) -> None:
    client.post(f"{job.path}/cancel")
    assert (
        client.get(f"{job.path}/events?follow=true").headers["content-type"].startswith("text/event-stream")
    )
    quiet = client.get(f"{job.path}/events?follow=false", headers={"accept": "text/event-stream, */*"})
    assert quiet.headers["content-type"] == "application/json"


def test_the_stream_of_a_finished_job_is_its_history_and_an_end(client: httpx.Client, job: Job) -> None:
    job.start()
    job.step(1, 2)
    job.finish()
    events = stream(client, f"{job.path}/metrics")
    assert [event.type for event in events] == ["metric", "metric", "end"]
    assert [data(event)["step"] for event in events[:2]] == [1, 2]
    assert data(events[-1]) == {"status": "succeeded", "reason": "completed", "message": ""}


def test_a_stream_needs_no_cache_and_no_buffer(client: httpx.Client, job: Job) -> None:
    client.post(f"{job.path}/cancel")
    headers = client.get(f"{job.path}/events?follow=true").headers
    assert headers["cache-control"] == "no-store"
    assert headers["x-accel-buffering"] == "no"


@pytest.mark.parametrize("with_broker", [True, False], ids=["with hints", "by polling"])
def test_a_stream_goes_on_while_the_job_runs(
    with_broker: bool, request: pytest.FixtureRequest, client: httpx.Client, job: Job
) -> None:
    if with_broker:
        request.getfixturevalue("broker")
    with streaming(client, f"{job.path}/metrics") as events:
        job.start()
        job.step(1)
        assert data(next(events))["step"] == 1
        job.step(2, 3)
        assert [data(event)["step"] for event in take(events, 2)] == [2, 3]
        job.finish()
        assert next(events).type == "end"
        assert next(events, None) is None


def test_a_cut_stream_goes_on_without_gap_or_repeat(client: httpx.Client, job: Job) -> None:
    job.start()
    job.step(*range(1, 1501))
    seen: list[str] = []
    for count in (1, 499, 700):
        headers = {"last-event-id": seen[-1]} if seen else {}
        with streaming(client, f"{job.path}/metrics", headers=headers) as events:
            seen += ids(take(events, count))
    job.finish()
    seen += ids(stream(client, f"{job.path}/metrics", headers={"last-event-id": seen[-1]}))
    items = pages(client, f"{job.path}/metrics", limit=1000)
    assert seen == [str(item["id"]) for item in items]
    assert len(seen) == 1500


def test_a_step_that_is_repeated_by_a_later_attempt_comes_again(
    client: httpx.Client, job: Job, submit: Callable[..., dict[str, Any]]
) -> None:
    job.start()
    job.step(1, 2)
    job.finish(Status.failed, Reason.trainer_crashed)
    with streaming(client, f"{job.path}/metrics") as events:
        assert [event.type for event in events] == ["metric", "metric", "end"]
    client.post(f"{job.path}/retry")
    job.start()
    job.step(2, 3)
    job.finish()
    items = client.get(f"{job.path}/metrics").json()["items"]
    assert [(item["step"], item["attempt"]) for item in items] == [(1, 1), (2, 2), (3, 2)]


def test_the_stream_of_a_deleted_job_ends(client: httpx.Client, job: Job) -> None:
    job.start()
    with streaming(client, f"{job.path}/events") as events:
        take(events, 3)
        client.post(f"{job.path}/cancel")
        job.finish()
        rest = list(events)
    assert rest[-1].type == "end"
    client.delete(job.path)
    assert client.get(f"{job.path}/events").status_code == 404
