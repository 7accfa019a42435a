import json

from tests.cli.scripted_server import answer, serving
from tests.cli.test_commands import regatta

HOST = {
    "name": "rack-1",
    "device": "gpu",
    "devices": [{"index": 0}, {"index": 1}],
    "accepts_jobs": True,
    "alive": True,
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
    for cell in ("rack-1", "2 gpu", "draining", "new disk"):
        assert cell in shown.stdout


def test_a_host_is_drained_with_a_reason_and_what_still_runs_is_said() -> None:
    with serving(body(HOST)) as server:
        shown = regatta("hosts", "drain", "rack-1", "--reason", "new disk", url=server.url)
        assert server.requests[0][0] in (
            "/hosts/rack-1/drain?reason=new+disk",
            "/hosts/rack-1/drain?reason=new%20disk",
        )
    assert shown.stdout.strip() == "rack-1: draining, 1 running"
