"""Pipelines: checked as a whole, stored together, and followed as one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from store.database import Database
from store.reasons import Reason
from store.settings import Settings
from store.states import Status
from tests.api.parts import Job, places

Post = Callable[..., httpx.Response]


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, database_url: str) -> str:
    """Both databases."""
    if request.param == "sqlite":
        return database_url
    return request.getfixturevalue("postgres")(request.getfixturevalue("migrated_postgres"))


@pytest.fixture
def steps(config: dict[str, Any]) -> list[dict[str, Any]]:
    """Finetuning with LoRA, merging, quantizing: each uses the step before, and they come in no order."""
    quantize = {
        "model_name_or_path": "job:merged",
        "dataset_name_or_path": "sft",
        "output_dir": "out",
        "do_ptq": True,
        "quant_type": "weight_only_int8",
    }
    return [
        {"id": "small", "task": "quantize", "config": quantize},
        {"id": "sft", "task": "finetune", "config": config | {"lora": True}, "priority": 3},
        {"id": "merged", "task": "merge", "config": {"lora_path": "job:sft", "output_dir": "out"}},
    ]


@pytest.fixture
def post(client: httpx.Client) -> Post:
    def send(jobs: Any, key: str | None = None, **members: Any) -> httpx.Response:
        headers = {"Idempotency-Key": key} if key else {}
        return client.post("/pipelines", json={"jobs": jobs} | members, headers=headers)

    return send


def by_step(pipeline: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {job["step"]: job for job in pipeline["jobs"]}


def test_jobs_are_stored_together_and_wait_for_each_other(
    client: httpx.Client, post: Post, steps: list
) -> None:
    answer = post(steps, name="to int8")
    assert answer.status_code == 201, answer.text
    pipeline = answer.json()
    assert answer.headers["location"] == f"/pipelines/{pipeline['id']}"
    assert (pipeline["name"], pipeline["status"]) == ("to int8", "queued")
    jobs = by_step(pipeline)
    assert [job["step"] for job in pipeline["jobs"]] == ["sft", "merged", "small"]
    assert {step: job["needs"] for step, job in jobs.items()} == {
        "sft": [],
        "merged": ["sft"],
        "small": ["merged"],
    }
    assert jobs["merged"]["message"] == f"waits for job {jobs['sft']['id']} (queued)"
    job = client.get(f"/jobs/{jobs['merged']['id']}").json()
    assert (job["name"], job["pipeline_id"], job["config"]["lora_path"]) == (
        "merged",
        pipeline["id"],
        f"job:{jobs['sft']['id']}",
    )
    assert client.get("/pipelines").json()["items"] == [client.get(answer.headers["location"]).json()]


def test_the_same_key_makes_one_pipeline(post: Post, steps: list) -> None:
    first, second = post(steps, key="k"), post(steps, key="k")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]
    assert post(steps, key="k", name="another").status_code == 409


def test_all_that_is_wrong_is_told_at_its_place_in_the_words_of_the_pipeline(post: Post, steps: list) -> None:
    steps[1]["config"]["learning_rate"] = "fast"
    steps[0]["config"]["model_name_or_path"] = "job:sft/checkpoint-2"
    steps[0]["priority"] = False
    steps.append(
        {"id": "again", "task": "dpo", "config": {"model_name_or_path": "job:sft", "output_dir": "o"}}
    )
    answer = post(steps)
    assert {place[1:3] for place in places(answer)} == {("jobs", 0), ("jobs", 1), ("jobs", 3)}
    assert ("body", "jobs", 0, "priority") in places(answer)
    assert ("body", "jobs", 1, "config", "learning_rate") in places(answer)
    told = next(e for e in answer.json()["errors"] if e["loc"][-1] == "model_name_or_path")
    assert told["msg"] == "job sft (finetune) makes a LoRA adapter, expected a model"
    assert '"lora_path": "job:sft"' in told["hint"]


@pytest.mark.parametrize(
    ("change", "place", "told"),
    [
        (lambda jobs: jobs[1]["config"].update(lora_path="job:small"), ("jobs", 0), "circle"),
        (
            lambda jobs: jobs[2]["config"].update(lora_path="job:sfd"),
            ("jobs", 2, "config", "lora_path"),
            "there is no job 'sfd' in this pipeline",
        ),
        (lambda jobs: jobs[2].update(id="sft"), ("jobs", 2, "id"), "two jobs have the id 'sft'"),
        (lambda jobs: jobs[2].update(id="Merged!"), ("jobs", 2, "id"), "expected a name of letters"),
        (lambda jobs: jobs[2].pop("id"), ("jobs", 2, "id"), "got null"),
        (lambda jobs: jobs.clear(), ("jobs",), "got 0 jobs"),
        (lambda jobs: jobs.append("merge"), ("jobs", 3), "expected a JSON object"),
    ],
)
def test_a_pipeline_that_cannot_be_ordered_is_refused(
    client: httpx.Client, post: Post, steps: list, change: Callable, place: tuple, told: str
) -> None:
    change(steps)
    answer = post(steps)
    assert answer.status_code == 422
    assert any(told in error["msg"] for error in answer.json()["errors"]), answer.text
    if told != "circle":
        assert ("body", *place) in places(answer)
    assert client.get("/jobs").json()["items"] == []


def test_other_members_are_refused(client: httpx.Client) -> None:
    assert places(client.post("/pipelines", json={"jobs": 3, "job": []})) == [
        ("body", "jobs"),
        ("body", "job"),
    ]
    assert places(client.post("/pipelines", json={})) == [("body", "jobs")]


def test_the_end_of_one_is_the_end_of_all_that_need_it(
    client: httpx.Client, post: Post, steps: list, database: Database, settings: Settings
) -> None:
    pipeline = post(steps).json()
    job = Job(by_step(pipeline)["sft"]["id"], database, settings)
    job.start()
    assert client.get(f"/pipelines/{pipeline['id']}").json()["status"] == "running"
    job.finish(Status.failed, Reason.nan_loss)
    after = client.get(f"/pipelines/{pipeline['id']}").json()
    assert after["status"] == "failed"
    assert by_step(after)["small"]["reason"] == "dependency_failed"
    assert client.post(f"/jobs/{job.id}/retry").status_code == 200
    assert client.get(f"/pipelines/{pipeline['id']}").json()["status"] == "queued"


def test_cancelling_stops_every_job_and_deleting_forgets_them(
    client: httpx.Client, post: Post, steps: list, tmp_path: Path
) -> None:
    pipeline = post(steps).json()
    path = f"/pipelines/{pipeline['id']}"
    refused = client.delete(path)
    assert (refused.status_code, refused.json()["allowed"]) == (409, ["cancel"])
    cancelled = client.post(f"{path}/cancel").json()
    assert cancelled["status"] == "cancelled"
    assert {job["status"] for job in cancelled["jobs"]} == {"cancelled"}
    assert client.post(f"{path}/cancel").status_code == 200
    assert client.delete(path).status_code == 204
    assert client.get(path).status_code == 404
    assert client.get("/jobs").json()["items"] == []


def test_a_pipeline_ends_with_its_last_job(client: httpx.Client, post: Post, steps: list) -> None:
    pipeline = post(steps[1:2]).json()
    client.post(f"/pipelines/{pipeline['id']}/cancel")
    assert client.delete(f"/jobs/{pipeline['jobs'][0]['id']}").status_code == 204
    assert client.get(f"/pipelines/{pipeline['id']}").status_code == 404
