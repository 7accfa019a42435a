"""Lists of jobs, one job, and what may be done to it in which state."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from store.database import Database
from store.reasons import Reason
from store.reports import Outcome, finish
from store.settings import Settings
from store.states import Status
from tests.api.parts import Job, places, serving

Submit = Callable[..., dict[str, Any]]


def names(client: httpx.Client, **query: Any) -> list[str]:
    return [job["name"] for job in client.get("/jobs", params=query).json()["items"]]


def test_jobs_are_listed_newest_first(client: httpx.Client, submit: Submit) -> None:
    for name in ("a", "b", "c"):
        submit(name=name)
    assert names(client) == ["c", "b", "a"]


def test_pages_of_jobs_hold_each_job_once(client: httpx.Client, submit: Submit) -> None:
    for n in range(5):
        submit(name=str(n))
    seen, query = [], {"limit": 2}
    while True:
        page = client.get("/jobs", params=query).json()
        seen += [job["name"] for job in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == ["4", "3", "2", "1", "0"]


def test_filters_all_have_to_match(client: httpx.Client, submit: Submit) -> None:
    submit(name="a", labels={"team": "search", "run": "1:2"})
    submit(name="b", labels={"team": "search"})
    client.post(f"/jobs/{submit(name='a')['id']}/cancel")
    assert names(client, label="team:search") == ["b", "a"]
    assert names(client, label=["team:search", "run:1:2"]) == ["a"]
    assert names(client, name="a", status="queued") == ["a"]
    assert names(client, status="cancelled", task="finetune") == ["a"]
    assert names(client, task="dpo") == []


def test_a_text_is_looked_for_in_names_and_at_the_start_of_ids(client: httpx.Client, submit: Submit) -> None:
    job_id = submit(name="Harbour 100%")["id"]
    submit(name="100 boats")
    assert (
        names(client, text="harb")
        == names(client, text="0%")
        == names(client, text=job_id)
        == ["Harbour 100%"]
    )
    assert names(client, text="100") == ["100 boats", "Harbour 100%"]
    assert names(client, text="_") == []


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ({"staus": "queued"}, ("query", "staus")),
        ({"status": "done"}, ("query", "status")),
        ({"limit": "0"}, ("query", "limit")),
        ({"limit": "many"}, ("query", "limit")),
        ({"cursor": "bogus"}, ("query", "cursor")),
        ({"label": "team"}, ("query", "label")),
        ({"label": ["team:a", "team:b"]}, ("query", "label")),
        ({"name": "a\0b"}, ("query", "name")),
        ({"label": "team:\0"}, ("query", "label")),
        ({"label": [f"k{n}:v" for n in range(2000)]}, ("query", "label")),
    ],
)
def test_a_bad_filter_is_refused_and_named(
    refusing_client: httpx.Client, query: dict[str, Any], place: tuple[str, str]
) -> None:
    assert places(refusing_client.get("/jobs", params=query)) == [place]


@pytest.mark.parametrize("job_id", ["nope", "01a22e3f-8f61-7021-a07e-4b31bb9e3683", "%00", "..%2f", "%F0%9F"])
def test_an_unknown_job_is_a_404_that_says_where_jobs_are_listed(
    refusing_client: httpx.Client, job_id: str
) -> None:
    for below in ("", "/events", "/logs", "/metrics", "/checkpoints", "/checkpoints/x", "/result/archive"):
        answer = refusing_client.get(f"/jobs/{job_id}{below}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        if "%" not in job_id:
            assert job_id in answer.json()["detail"]
            assert "GET /jobs" in answer.json()["detail"]


def test_a_running_job_shows_progress_and_placement(client: httpx.Client, job: Job) -> None:
    job.start()
    job.say({"t": 2.0, "type": "progress", "step": 2, "total_steps": 4, "loss": 3.5, "eta_s": 1.5})
    shown = client.get(job.path).json()
    assert (shown["status"], shown["reason"]) == ("running", "started")
    assert shown["placement"] == [{"host": "pier", "devices": [0], "ranks": [0]}]
    assert shown["progress"]["step"] == 2
    assert shown["progress"]["loss"] == 3.5
    assert shown["progress"]["eta_s"] == 1.5
    assert shown["started_at"].endswith("Z")


def test_a_job_that_has_stopped_keeps_its_progress_and_has_no_time_left(
    client: httpx.Client, job: Job
) -> None:
    job.start()
    job.say({"t": 2.0, "type": "progress", "step": 2, "total_steps": 4, "loss": 3.5, "eta_s": 1.5})
    client.post(f"{job.path}/cancel")
    job.finish()
    progress = client.get(job.path).json()["progress"]
    assert (progress["step"], progress["loss"], progress["eta_s"]) == (2, 3.5, None)


def test_a_waiting_job_is_cancelled_at_once(client: httpx.Client, job: Job) -> None:
    answer = client.post(f"{job.path}/cancel")
    assert answer.status_code == 200
    assert answer.json()["status"] == "cancelled"
    assert answer.json()["finished_at"] is not None


def test_a_running_job_stops_when_it_is_cancelled(client: httpx.Client, job: Job) -> None:
    job.start()
    assert client.post(f"{job.path}/cancel").json()["status"] == "stopping"
    assert client.post(f"{job.path}/cancel").json()["status"] == "stopping"
    job.finish()
    assert client.get(job.path).json()["status"] == "cancelled"


def test_a_failed_job_can_be_retried(client: httpx.Client, job: Job) -> None:
    job.start()
    job.finish(Status.failed, Reason.trainer_crashed)
    answer = client.post(f"{job.path}/retry")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["attempt"]) == ("queued", 2)


def test_a_failed_job_tells_whose_fault_that_is_and_what_is_known_of_it(
    client: httpx.Client, job: Job, database: Database
) -> None:
    shown = client.get(job.path).json()
    assert (shown["fault"], shown["retry_helps"], shown["evidence"]) == (None, False, None)
    job.start()
    outcome = Outcome(Status.failed, Reason.trainer_killed, "It was killed.", 137, "SIGKILL", ("last words",))
    with database.transaction() as session:
        assert finish(session, job.id, 1, "runner", outcome)
    shown = client.get(job.path).json()
    assert (shown["status"], shown["fault"], shown["retry_helps"]) == ("queued", "infrastructure", True)
    assert shown["not_before"] > shown["queued_at"]
    evidence = {"attempt": 1, "host": "pier", "exit_code": 137, "signal": "SIGKILL", "log": ["last words"]}
    assert shown["evidence"] == shown["evidence"] | evidence


@pytest.mark.parametrize(
    ("status", "call", "allowed"),
    [
        ("succeeded", "cancel", ["delete"]),
        ("succeeded", "retry", ["delete"]),
        ("queued", "retry", ["cancel"]),
        ("queued", "delete", ["cancel"]),
        ("running", "delete", ["cancel"]),
        ("cancelled", "cancel", ["retry", "delete"]),
    ],
)
def test_what_the_state_forbids_is_a_conflict_that_says_what_is_allowed(
    client: httpx.Client, job: Job, status: str, call: str, allowed: list[str]
) -> None:
    if status == "cancelled":
        client.post(f"{job.path}/cancel")
    elif status != "queued":
        job.start()
    if status == "succeeded":
        job.finish()
    answer = client.delete(job.path) if call == "delete" else client.post(f"{job.path}/{call}")
    assert answer.status_code == 409
    assert answer.json()["type"] == "urn:regatta:problem:conflict"
    assert answer.json()["job_status"] == status
    assert answer.json()["allowed"] == allowed
    assert client.get(job.path).json()["status"] == status


def test_a_deleted_job_is_gone_with_its_artifacts(
    broker: object, client: httpx.Client, job: Job, roots: Any
) -> None:
    job.start()
    job.log(3)
    job.publish("checkpoint-2", roots / "data" / "sft", step=2)
    job.finish()
    assert client.delete(job.path).status_code == 204
    assert client.get(job.path).status_code == 404
    assert client.delete(job.path).status_code == 404
    assert job.artifacts.list(f"jobs/{job.id}") == []
    assert job.stream.position(job.id) is None


@pytest.mark.parametrize("call", ["cancel", "retry"])
def test_changing_an_unknown_job_is_a_404(refusing_client: httpx.Client, call: str) -> None:
    assert refusing_client.post(f"/jobs/nope/{call}").status_code == 404


def test_jobs_live_on_postgresql_too(
    postgres: Callable[..., str], migrated_postgres: str, settings: Settings, config: dict[str, Any]
) -> None:
    url = postgres(migrated_postgres)
    settings = settings.model_copy(update={"database_url": url})
    database = Database(url)
    with serving(settings) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        body = {"task": "finetune", "config": config, "labels": {"team": "search"}}
        job = Job(client.post("/jobs", json=body).json()["id"], database, settings)
        job.start()
        job.step(1, 2)
        job.finish()
        assert client.get(job.path).json()["status"] == "succeeded"
        assert [item["step"] for item in client.get(f"{job.path}/metrics").json()["items"]] == [1, 2]
        assert len(client.get("/jobs", params={"label": "team:search"}).json()["items"]) == 1
        for path in ("/jobs/%00", "/jobs?cursor=WzEuMCwiXHUwMDAwIl0", f"{job.path}/checkpoints/%00"):
            assert client.get(path).status_code in (404, 422)
    database.dispose()
