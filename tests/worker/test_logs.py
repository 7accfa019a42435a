"""What a runner writes of its own work."""

import json

import pytest

from store.settings import Settings
from tests.worker.bench import Bench


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"log_format": "json", "lease_ttl_s": 60.0})


def test_a_runner_writes_json_lines_that_name_its_attempt(bench: Bench):
    job = bench.run({})
    (folder,) = bench.workspace(job.id).attempts()
    lines = [json.loads(line) for line in folder.runner_log.read_text().splitlines()]
    assert lines
    assert {(line["job_id"], line["attempt"]) for line in lines} == {(job.id, 1)}
    assert "reported: succeeded, completed" in [line["message"] for line in lines]
