"""A project that has as many jobs in the queue as it may have is told so."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.api.parts import on_both_databases


@on_both_databases
def test_a_full_queue_is_a_429_that_says_what_to_do(
    client: httpx.Client, submit: Callable[..., dict[str, Any]], config: dict[str, Any]
) -> None:
    client.patch("/projects/default", json={"most_queued": 1}).raise_for_status()
    job = submit()
    answer = client.post(
        "/jobs", json={"task": "finetune", "config": config}, headers={"Idempotency-Key": "again"}
    )
    assert answer.status_code == 429
    assert answer.headers["retry-after"].isdigit()
    problem = answer.json()
    assert problem["type"] == "urn:regatta:problem:quota-exceeded"
    assert problem["detail"].startswith("Project default has 1 of at most 1 jobs in the queue")
    client.post(f"/jobs/{job['id']}/cancel").raise_for_status()
    again = client.post(
        "/jobs", json={"task": "finetune", "config": config}, headers={"Idempotency-Key": "again"}
    )
    assert again.status_code == 201
    assert client.post(f"/jobs/{job['id']}/retry").status_code == 429
