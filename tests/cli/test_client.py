import pytest

from cli.client import Client, job_path
from cli.errors import AWAY, ApiError, ServerAway
from tests.cli.scripted_server import answer, serving


def test_items_come_from_page_after_page() -> None:
    first = answer(200, b'{"items": [{"id": 1}, {"id": 2}], "next_cursor": "a b"}')
    last = answer(200, b'{"items": [{"id": 3}], "next_cursor": null}')
    with serving(first, last) as server, Client(server.url) as client:
        assert [item["id"] for item in client.items("/jobs", {"status": "failed"})] == [1, 2, 3]
    paths = [path for path, _ in server.requests]
    assert paths == ["/jobs?limit=200&status=failed", "/jobs?limit=200&status=failed&cursor=a+b"]


def test_parameters_without_a_value_are_not_sent_and_lists_are_repeated() -> None:
    with serving(answer(200, b"{}")) as server, Client(server.url) as client:
        client.get("/jobs", {"task": None, "label": [], "status": ["failed", "queued"]})
    assert server.requests[0][0] == "/jobs?status=failed&status=queued"


def test_an_error_carries_the_servers_sentence_and_problems() -> None:
    body = (
        b'{"title": "Invalid", "detail": "1 problem", "errors": [{"loc": ["task"], "msg": "m", "hint": "h"}]}'
    )
    with (
        serving(answer(422, body)) as server,
        Client(server.url) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.get("/jobs")
    assert str(caught.value) == "Invalid"
    assert caught.value.problems == ({"loc": ["task"], "msg": "m", "hint": "h"},)


def test_an_answer_that_is_not_the_services_is_told_with_its_address() -> None:
    page = answer(502, b"<html>", "text/html")
    with serving(page) as server, Client(server.url) as client, pytest.raises(ApiError) as caught:
        client.get("/jobs")
    assert str(caught.value) == f"HTTP 502 from {server.url}/jobs: the answer is not JSON (text/html)"


def test_nobody_at_the_address_is_one_sentence_with_the_remedy() -> None:
    with serving(answer(200, b"{}")) as server:
        url = server.url
    with Client(url) as client, pytest.raises(ServerAway, match="Start one with `regatta up`") as caught:
        client.get("/jobs")
    assert caught.value.exit_code == AWAY


def test_ids_stay_one_path_segment() -> None:
    assert job_path("../a?b", "checkpoints", "c/d") == "/jobs/..%2Fa%3Fb/checkpoints/c%2Fd"


def test_the_address_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_URL", "http://example.test:9000/")
    with Client() as client:
        assert client.url == "http://example.test:9000"
