"""What surrounds every request: ids and the access log."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from store.settings import Settings
from tests.api.parts import wait_until


def test_every_answer_names_its_request(refusing_client: httpx.Client) -> None:
    made = [refusing_client.get("/healthz").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert re.fullmatch("[0-9a-f]{32}", made[0])


def test_a_plain_short_id_of_the_client_is_taken_over(refusing_client: httpx.Client) -> None:
    answer = refusing_client.get("/nothing", headers={"x-request-id": "job-7:a.b_c"})
    assert answer.headers["x-request-id"] == "job-7:a.b_c"
    assert answer.json()["request_id"] == "job-7:a.b_c"


@pytest.mark.parametrize("given", ["", "a b", 'a"b', "ä".encode(), "x" * 65, "a,b", "<b>"])
def test_any_other_id_is_replaced(refusing_client: httpx.Client, given: str) -> None:
    answer = refusing_client.get("/healthz", headers=[("x-request-id", given)])
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_the_server_writes_json_lines_with_its_requests(settings: Settings, tmp_path: Path) -> None:
    variables = {
        "REGATTA_DATABASE_URL": settings.database_url,
        "REGATTA_DATA_DIR": str(tmp_path),
        "REGATTA_LOG_FORMAT": "json",
        "PYTHONWARNINGS": "ignore",
    }
    log = tmp_path / "api.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "cli", "api", "--port", "0"]
        process = subprocess.Popen(command, env=os.environ | variables, stdout=output, stderr=output)
    try:
        wait_until(lambda: re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text()))
        address = re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())
        assert address is not None
        with httpx.Client(base_url=address[0], timeout=20) as client:
            client.get("/healthz?secret=hush")
            client.get("/jobs/0197-no-such-job", headers={"x-request-id": "r-7"})
    finally:
        process.terminate()
        process.wait(20)
    assert "hush" not in log.read_text()
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (access,) = [line for line in lines if line.get("request_id") == "r-7"]
    assert access["logger"] == "regatta.access"
    assert access["job_id"] == "0197-no-such-job"
    assert (access["method"], access["route"], access["status"]) == ("GET", "/jobs/{job_id}", 404)
    assert access["duration_s"] >= 0
