"""One server serves many: calls that take long leave room for the others."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
from sqlalchemy import text

from store.database import Database

JOBS = 60
"""More than the server has threads."""


def test_jobs_that_wait_to_be_stored_leave_room_for_other_calls(
    client: httpx.Client, config: dict[str, Any], database: Database
) -> None:
    body = {"task": "finetune", "config": config}
    with ThreadPoolExecutor(JOBS) as pool:
        with database.transaction() as session:
            session.execute(text("UPDATE jobs SET priority = 0"))  # nobody else can write now
            answers = [pool.submit(client.post, "/jobs", json=body) for _ in range(JOBS)]
            assert client.get("/jobs", timeout=10).status_code == 200
            assert not any(answer.done() for answer in answers)
        assert [answer.result().status_code for answer in answers] == [201] * JOBS
