import json

from tests.cli.scripted_server import answer, serving
from tests.cli.test_commands import regatta

HOST = {
    "name": "rack-1",
    "device": "gpu",
    "devices": [{"index": 0}, {"index": 1}],
    "accepts_jobs": True,
    "alive": True,
    "info": {"regatta": "0.1.0", "paddle": "3.3.1", "driver": None, "memory_bytes": 64 << 30},
    "excluded": False,
    "exclusion_reason": "",
    "cordoned": True,
    "draining": True,
    "cordon_reason": "new disk",
    "heartbeat_at": "2026-01-01T00:00:00Z",
    "running": [{"job_id": None, "attempt": 1, "rank": 0, "devices": [1]}],
}


def body(value: object):
    return answer(200, json.dumps(value).encode())


def test_the_list_shows_what_is_in_use_and_who_gets_no_jobs_why() -> None:
    with serving(body({"items": [HOST], "next_cursor": None})) as server:
        shown = regatta("hosts", "list", url=server.url)
    for cell in ("rack-1", "2 gpu", "draining", "new disk", "64 GiB", "paddle 3.3.1"):
        assert cell in shown.stdout


def test_a_host_that_jobs_failed_on_is_shown_as_excluded() -> None:
    excluded = {"excluded": True, "exclusion_reason": "a device is broken"}
    usual = {"cordoned": False, "draining": False, "cordon_reason": ""}
    with serving(body({"items": [HOST | usual | excluded], "next_cursor": None})) as server:
        shown = regatta("hosts", "list", url=server.url)
    assert "excluded" in shown.stdout
    assert "a device is broken" in " ".join(shown.stdout.split())


def test_a_host_is_drained_with_a_reason_and_what_still_runs_is_said() -> None:
    with serving(body(HOST)) as server:
        shown = regatta("hosts", "drain", "rack-1", "--reason", "new disk", url=server.url)
        assert server.requests[0][0] in (
            "/hosts/rack-1/drain?reason=new+disk",
            "/hosts/rack-1/drain?reason=new%20disk",
        )
    assert shown.stdout.strip() == "rack-1: draining, 1 running"
