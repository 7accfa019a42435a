"""Numbers for Prometheus."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.telemetry import state
from store import tallies
from store.database import Database
from store.settings import Settings
from store.states import Reason, Status
from tests.api.parts import Job, serving, streaming

UNITS = ("_seconds", "_bytes", "_total", "_ratio")


@pytest.fixture(autouse=True)
def _look_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "KEEP_S", 0.0)
    monkeypatch.setattr(tallies, "SETTLED_S", 0.0)


def scrape(client: httpx.Client) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by name and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


@contextmanager
def changes(client: httpx.Client) -> Iterator[Callable[..., float]]:
    """How much samples have grown since the block began."""
    before = scrape(client)

    def grown(name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return scrape(client).get(key, 0.0) - before.get(key, 0.0)

    yield grown


def value(client: httpx.Client, name: str, **labels: str) -> float | None:
    return scrape(client).get((name, frozenset(labels.items())))


def test_names_and_texts_follow_the_conventions(client: httpx.Client, job: Job) -> None:
    job.start()
    families = list(text_string_to_metric_families(client.get("/metrics").text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    for family in families:
        assert family.name.startswith(("regatta_", "process_")), family.name
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        if family.type == "counter":
            assert all(sample.name.endswith(("_total", "_created")) for sample in family.samples)
        if family.type == "histogram":
            assert family.name.endswith(UNITS)


def test_the_queue_is_told_by_project_priority_and_device(
    client: httpx.Client, submit: Callable[..., dict[str, Any]]
) -> None:
    for priority in (0, 5, 7, -1):
        submit(priority=priority)
    depth = {
        name: value(client, "regatta_queue_jobs", project="default", device="cpu", priority=name)
        for name in ("high", "normal", "low")
    }
    assert depth == {"high": 2, "normal": 1, "low": 1}
    oldest = value(client, "regatta_queue_oldest_seconds", project="default", device="cpu", priority="normal")
    assert oldest is not None
    assert oldest >= 0


def test_a_job_is_counted_from_its_placement_to_its_end(client: httpx.Client, job: Job) -> None:
    with changes(client) as grown:
        job.start()
        assert value(client, "regatta_active_jobs", project="default", status="running", device="cpu") == 1
        assert value(client, "regatta_host_devices", host="pier", kind="cpu", state="used") == 1
        assert value(client, "regatta_host_accepts_jobs", host="pier") == 1
        assert grown("regatta_job_wait_seconds_count", project="default", device="cpu") == 1
        job.finish()
        assert (
            grown(
                "regatta_jobs_finished_total",
                project="default",
                task="finetune",
                status="succeeded",
                reason="completed",
            )
            == 1
        )
        outcome = {"task": "finetune", "outcome": "succeeded"}
        assert grown("regatta_attempts_ended_total", **outcome, reason="completed") == 1
        assert grown("regatta_attempt_duration_seconds_count", **outcome) == 1
    assert value(client, "regatta_active_jobs", project="default", status="running", device="cpu") is None


def test_a_failed_attempt_is_counted_by_its_reason(client: httpx.Client, job: Job) -> None:
    with changes(client) as grown:
        job.start()
        job.finish(Status.failed, Reason.nan_loss)
        labels = {"task": "finetune", "outcome": "failed", "reason": "nan_loss"}
        assert grown("regatta_attempts_ended_total", **labels) == 1


def test_requests_are_counted_by_the_template_of_their_route(client: httpx.Client) -> None:
    with changes(client) as grown:
        for job_id in ("one", "two"):
            client.get(f"/jobs/{job_id}")
        client.get("/no/such/place")
        assert grown("regatta_http_requests_total", method="GET", route="/jobs/{job_id}", status="404") == 2
        assert grown("regatta_http_requests_total", method="GET", route="none", status="404") == 1
        timed = "regatta_http_request_duration_seconds_count"
        assert grown(timed, method="GET", route="/jobs/{job_id}") == 2


def test_followers_are_counted_while_they_follow(
    broker: object, client: httpx.Client, job: Job, settings: Settings
) -> None:
    with streaming(client, f"{job.path}/logs"), httpx.Client(base_url=client.base_url) as other:
        assert value(other, "regatta_stream_followers", history="logs") == 1


def test_without_the_database_the_rest_is_still_told(settings: Settings, database: Database) -> None:
    away = settings.model_copy(
        update={"database_url": "postgresql://someone:hush@127.0.0.1:9/regatta?connect_timeout=1"}
    )
    with serving(away) as server, httpx.Client(base_url=server.url, timeout=20) as client:
        assert value(client, "regatta_database_up") == 0
        assert "hush" not in client.get("/metrics").text
