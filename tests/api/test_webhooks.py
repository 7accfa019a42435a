"""Webhooks through the API: given with a job, shown without what is secret, sent again when asked for."""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from store.database import Database
from store.secretbox import ensure_key_file, open_box
from store.settings import Settings
from store.tables import Webhook
from store.webhooks import Answer, begin_try, due_deliveries, end_try, new_secret, secret_key
from tests.api.parts import serving

Submit = Callable[..., dict[str, Any]]
URL = "https://example.com/hook?token=abc"


@pytest.fixture(autouse=True)
def key(settings: Settings) -> None:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    ensure_key_file(settings)


def try_all(database: Database, answer: Answer) -> None:
    with database.transaction() as session:
        for delivery_id, _, _ in due_deliveries(session, 10):
            tried = begin_try(session, delivery_id)
            assert tried is not None
            end_try(session, tried, answer)


def test_a_made_secret_is_shown_once_and_kept_encrypted(
    client: httpx.Client, submit: Submit, database: Database, settings: Settings
) -> None:
    job = submit(webhook={"url": URL, "events": ["job.failed", "job.succeeded"]})
    secret = job["webhook"].pop("secret")
    shown = {"url": "https://example.com/hook?token=***", "events": ["job.failed", "job.succeeded"]}
    assert job["webhook"] == shown | {"disabled_at": None}
    assert secret_key(secret)
    with database.reading() as session:
        kept = session.execute(select(Webhook.secret)).scalar_one()
    assert secret not in kept
    assert open_box(settings).decrypt(kept) == secret
    for path in (job["links"]["self"], job["links"]["webhook"], "/jobs"):
        assert secret not in client.get(path).text


def test_a_secret_of_the_client_is_never_shown(client: httpx.Client, submit: Submit) -> None:
    secret = new_secret()
    job = submit(webhook={"url": URL, "secret": secret})
    assert job["webhook"]["secret"] is None
    assert len(job["webhook"]["events"]) == 7
    assert secret not in client.get(job["links"]["self"]).text


def test_a_repeated_request_does_not_show_the_secret_again(client: httpx.Client, config: dict) -> None:
    body = {"task": "finetune", "config": config, "webhook": {"url": URL}}
    first, again = (client.post("/jobs", json=body, headers={"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["webhook"]["secret"]
    assert again.json()["webhook"]["secret"] is None


@pytest.mark.parametrize(
    ("webhook", "place", "text"),
    [
        ({}, "url", "is missing"),
        ({"url": "https://example.com", "colour": 1}, "colour", "unknown field"),
        ({"url": 7}, "url", "got 7, expected text"),
        ({"url": "http://example.com"}, "url", "expected https"),
        ({"url": "https://127.0.0.1/"}, "url", "no public address"),
        ({"url": "https://2130706433/"}, "url", "no public address"),
        ({"url": "https://[::ffff:169.254.169.254]/"}, "url", "no public address"),
        ({"url": "https://u:p@example.com/"}, "url", "without a user name"),
        ({"url": "https://example.com", "secret": "hush"}, "secret", "expected whsec_"),
        ({"url": "https://example.com", "events": ["job.gone"]}, "events", "expected one of"),
        ({"url": "https://example.com", "events": []}, "events", "at least 1"),
    ],
)
def test_a_webhook_that_cannot_work_is_refused_at_once(
    refusing_client: httpx.Client, config: dict[str, Any], webhook: dict, place: str, text: str
) -> None:
    answer = refusing_client.post("/jobs", json={"task": "finetune", "config": config, "webhook": webhook})
    assert answer.status_code == 422
    told = {tuple(error["loc"][:3]): error["msg"] for error in answer.json()["errors"]}
    assert text in told["body", "webhook", place]


def test_an_allowed_network_may_be_reached_by_http(settings: Settings, config: dict) -> None:
    allowed = settings.model_copy(update={"webhook_allowed_networks": (ip_network("127.0.0.0/8"),)})
    with serving(allowed) as server, httpx.Client(base_url=server.url) as client:
        for url, status in (("http://127.0.0.1:9/", 201), ("http://10.0.0.1/", 422)):
            body = {"task": "finetune", "config": config, "webhook": {"url": url}}
            assert client.post("/jobs", json=body).status_code == status


def test_without_a_key_no_webhook_can_be_kept(client: httpx.Client, settings: Settings, config: dict) -> None:
    (settings.data_dir / "secret.key").unlink()
    answer = client.post("/jobs", json={"task": "finetune", "config": config, "webhook": {"url": URL}})
    assert answer.status_code == 503
    assert "REGATTA_SECRET_KEY" in answer.json()["detail"]


def test_the_log_tells_of_every_delivery_and_its_next_try(
    client: httpx.Client, submit: Submit, database: Database
) -> None:
    links = submit(webhook={"url": URL})["links"]
    try_all(database, Answer(503, "answered 503"))
    client.post(links["cancel"])
    try_all(database, Answer(200))
    log = client.get(links["webhook"]).json()
    assert log["webhook"]["url"] == "https://example.com/hook?token=***"
    missed, arrived = log["items"]
    assert (missed["type"], missed["status"], missed["attempts"]) == ("job.queued", "waiting", 1)
    assert (missed["answer_code"], missed["error"]) == (503, "answered 503")
    assert missed["next_try_at"] > missed["tried_at"] > missed["created_at"]
    assert (arrived["type"], arrived["status"], arrived["next_try_at"]) == (
        "job.cancelled",
        "delivered",
        None,
    )
    page = client.get(links["webhook"], params={"limit": 1}).json()
    assert page["items"] == [missed]
    page = client.get(links["webhook"], params={"limit": 1, "cursor": page["next_cursor"]}).json()
    assert (page["items"], page["next_cursor"]) == ([arrived], None)


def test_deliveries_are_sent_again_when_that_is_asked_for(
    client: httpx.Client, submit: Submit, database: Database
) -> None:
    again = f"{submit(webhook={'url': URL})['links']['webhook']}"
    try_all(database, Answer(410, "answered 410"))
    assert client.get(again).json()["webhook"]["disabled_at"]
    assert client.post(f"{again}/redeliver").json() == {"deliveries": 1}
    log = client.get(again).json()
    assert (log["webhook"]["disabled_at"], log["items"][0]["status"]) == (None, "waiting")
    try_all(database, Answer(200))
    assert client.post(f"{again}/redeliver").json() == {"deliveries": 0}
    delivery = log["items"][0]["id"]
    assert client.post(f"{again}/redeliver", params={"delivery": delivery}).json() == {"deliveries": 1}
    assert client.post(f"{again}/redeliver", params={"delivery": "nope"}).status_code == 404


def test_a_job_without_a_webhook_has_no_log(client: httpx.Client, submit: Submit) -> None:
    job = submit()
    assert job["webhook"] is None
    assert client.get(f"/jobs/{job['id']}/webhook").status_code == 404
    assert client.post(f"/jobs/{job['id']}/webhook/redeliver").status_code == 404
    assert client.get("/jobs/nope/webhook").status_code == 404
