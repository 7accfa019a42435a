import json

from tests.cli.scripted_server import answer, serving
from tests.cli.test_commands import regatta

HOOK = {"url": "https://example.com/hook?token=***", "events": ["job.failed"], "disabled_at": None}
DELIVERY = {
    "id": "019338a0-0000-7000-8000-00000000000d",
    "event_id": 4,
    "type": "job.failed",
    "status": "waiting",
    "attempts": 2,
    "created_at": "2026-01-01T00:00:00Z",
    "tried_at": "2026-01-01T00:00:06Z",
    "delivered_at": None,
    "next_try_at": "2026-01-01T00:05:06Z",
    "answer_code": 503,
    "error": "answered 503",
}


def body(value: object):
    return answer(200, json.dumps(value).encode())


def test_the_log_of_a_webhook_is_a_table_or_json() -> None:
    page = {"webhook": HOOK, "items": [DELIVERY], "next_cursor": None}
    with serving(body(page)) as server:
        shown = regatta("webhook", "show", "J", url=server.url)
        assert (shown.returncode, shown.stderr.strip()) == (0, HOOK["url"])
        for cell in (DELIVERY["id"], "job.failed", "waiting", "answered 503"):
            assert cell in shown.stdout
        shown = regatta("webhook", "show", "J", "--json", url=server.url)
        assert json.loads(shown.stdout) == {"webhook": HOOK, "deliveries": [DELIVERY]}


def test_sending_again_names_the_delivery_and_counts() -> None:
    with serving(body({"deliveries": 1})) as server:
        shown = regatta("webhook", "redeliver", "J", "a/b", url=server.url)
        assert server.requests[0][0] == "/jobs/J/webhook/redeliver?delivery=a%2Fb"
        assert shown.stdout == "1 delivery is sent again.\n"


def test_a_secret_that_the_server_has_made_is_told_and_stdout_stays_the_id(tmp_path) -> None:
    file = tmp_path / "sft_argument.json"
    file.write_text('{"dataset_name_or_path": "./data"}')
    job = {"id": "J", "status": "queued", "webhook": HOOK | {"secret": "whsec_abc"}}
    with serving(body(job)) as server:
        shown = regatta("submit", str(file), "--webhook", "https://example.com/hook", url=server.url)
    assert (shown.stdout, "whsec_abc" in shown.stderr) == ("J\n", True)
