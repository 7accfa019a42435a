"""The history of everything: who has done what, in all jobs and beside them."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from store.database import Database
from store.events import add_event
from store.keys import Scope
from tests.api.keyed import Keyed
from tests.api.parts import Job, data, on_both_databases, places, streaming, take

Submit = Callable[..., dict[str, Any]]


def told(client: httpx.Client, **query: str) -> list[tuple[str, str]]:
    items = client.get("/events", params=query).json()["items"]
    return [(event["type"], event["actor"]) for event in items]


@on_both_databases
def test_what_was_done_and_by_whom_outlives_the_job(client: httpx.Client, submit: Submit) -> None:
    job_id = submit(name="first")["id"]
    client.post(f"/jobs/{job_id}/cancel").raise_for_status()
    client.delete(f"/jobs/{job_id}").raise_for_status()
    assert told(client, job=job_id) == [("status", "local"), ("status", "local"), ("deleted", "local")]
    last = client.get("/events", params={"job": job_id, "type": "deleted"}).json()["items"][0]
    assert (last["project"], last["job_id"], last["data"]["name"]) == ("default", job_id, "first")


@on_both_databases
def test_workers_and_the_scheduler_are_told_from_users(client: httpx.Client, job: Job) -> None:
    job.start()
    job.say({"t": 3.0, "type": "warning", "msg": "careful"})
    job.finish()
    assert told(client, job=job.id) == [
        ("status", "local"),
        ("status", "scheduler"),
        ("status", "host pier"),
        ("warning", "host pier"),
        ("status", "host pier"),
    ]


@on_both_databases
def test_pages_hold_each_event_once(client: httpx.Client, submit: Submit) -> None:
    for _ in range(3):
        submit()
    first = client.get("/events", params={"limit": 2}).json()
    rest = client.get("/events", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert len(first["items"]) == 2
    assert len(rest["items"]) == 1
    assert rest["next_cursor"] is None
    assert first["items"][-1]["id"] < rest["items"][0]["id"]


@on_both_databases
def test_times_limit_what_is_shown(client: httpx.Client, submit: Submit) -> None:
    submit()
    moment = client.get("/events").json()["items"][0]["time"]
    assert told(client, until="2020-01-01T00:00:00Z") == []
    assert told(client, since=moment, until="2999-01-01T00:00:00+02:00") == [("status", "local")]
    assert places(client.get("/events", params={"since": "2020-01-01T00:00:00"})) == [("query", "since")]
    assert places(client.get("/events", params={"since": "yesterday"})) == [("query", "since")]


@on_both_databases
def test_a_follower_gets_what_there_is_and_what_comes_of_all_jobs(
    client: httpx.Client, submit: Submit, database: Database
) -> None:
    jobs = [submit()["id"], submit()["id"]]
    with streaming(client, "/events") as events:
        first = take(events, 2)
        assert [data(event)["job_id"] for event in first] == jobs
        with database.transaction() as session:
            add_event(session, jobs[0], "warning", "late")
        (late,) = take(events, 1)
        assert (data(late)["job_id"], data(late)["message"]) == (jobs[0], "late")
    with streaming(client, "/events", headers={"last-event-id": first[1].id or ""}) as events:
        assert take(events, 1)[0].id == late.id


@on_both_databases
def test_a_follower_of_few_events_among_many_goes_on(
    client: httpx.Client, submit: Submit, database: Database
) -> None:
    job_id = submit()["id"]
    with (
        streaming(client, "/events", params={"type": "warning"}) as events,
        database.transaction() as session,
    ):
        for number in range(3):
            add_event(session, job_id, "note" if number < 2 else "warning", str(number))
        session.commit()
        assert data(take(events, 1)[0])["message"] == "2"


@on_both_databases
def test_a_project_sees_its_own_events_alone(keyed: Keyed, config: dict[str, Any]) -> None:
    keyed.project("fleet")
    with (
        keyed.client() as owner,
        keyed.client("fleet") as member,
        keyed.client("fleet", [Scope.admin]) as boss,
    ):
        job = owner.post("/jobs", json={"task": "finetune", "config": config}).json()
        assert ("status", job["submitted_by"]) in told(owner)
        assert all(kind != "status" for kind, _ in told(member))
        assert told(member, job=job["id"]) == []
        assert told(boss, job=job["id"]) == told(owner, job=job["id"]) == [("status", job["submitted_by"])]
        assert told(boss, project="default", type="status") == told(owner, type="status")
        assert member.get("/events", params={"project": "default"}).status_code == 404
        assert member.get("/events", params={"project": "fleet"}).status_code == 200


@pytest.mark.parametrize("query", [{"limit": 0}, {"job": "x" * 40}, {"kind": "status"}, {"after": -1}])
def test_a_wrong_question_is_refused(refusing_client: httpx.Client, query: dict[str, Any]) -> None:
    assert refusing_client.get("/events", params=query).status_code == 422
