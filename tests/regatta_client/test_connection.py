"""Calls are repeated where that is safe, and refusals are errors of their kind."""

from contextlib import closing

import pytest

from regatta_client.connection import Connection
from regatta_client.errors import ApiError, InvalidError, NotFoundError, ServerFailedError
from tests.cli.scripted_server import answer, serving

AWAY, FINE = answer(503, b"{}"), answer(200, b'{"id": 1}')


def test_reading_is_repeated() -> None:
    with serving(AWAY, FINE) as server, closing(Connection(server.url)) as connection:
        assert connection.request("GET", "/x") == {"id": 1}


def test_posting_is_repeated_with_its_key_only() -> None:
    with (
        serving(AWAY, FINE) as server,
        closing(Connection(server.url)) as connection,
        pytest.raises(ServerFailedError),
    ):
        connection.request("POST", "/x", json={})
    with serving(AWAY, FINE) as server, closing(Connection(server.url)) as connection:
        headers = {"Idempotency-Key": "k"}
        assert connection.request("POST", "/x", json={}, headers=headers) == {"id": 1}
    assert [headers["idempotency-key"] for _, headers in server.requests] == ["k", "k"]


def test_a_call_is_given_up_after_some_tries() -> None:
    with (
        serving(AWAY) as server,
        closing(Connection(server.url, retries=1)) as connection,
        pytest.raises(ServerFailedError),
    ):
        connection.request("GET", "/x")
    assert len(server.requests) == 2


def test_a_refusal_has_its_kind_and_its_problems() -> None:
    body = (
        b'{"type": "urn:regatta:problem:invalid", "title": "Invalid", "detail": "1 problem",'
        b' "errors": [{"loc": ["body", "task"], "msg": "m", "hint": "h"}]}'
    )
    with (
        serving(answer(422, body)) as server,
        closing(Connection(server.url)) as connection,
        pytest.raises(InvalidError, match="Invalid: 1 problem") as refusal,
    ):
        connection.request("GET", "/x")
    assert refusal.value.kind == "invalid"
    (problem,) = refusal.value.problems
    assert (problem.loc, problem.msg, problem.hint) == (["body", "task"], "m", "h")


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFoundError), (418, ApiError), (500, ServerFailedError)]
)
def test_every_status_is_an_error(status: int, kind: type[ApiError]) -> None:
    with (
        serving(answer(status, b"{}")) as server,
        closing(Connection(server.url, retries=0)) as connection,
        pytest.raises(kind),
    ):
        connection.request("GET", "/x")


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REGATTA_API_KEY", "rgt_a_b")
    with serving(FINE) as server, closing(Connection(server.url)) as connection:
        connection.request("GET", "/x")
    assert server.requests[0][1]["authorization"] == "Bearer rgt_a_b"


def test_what_is_no_key_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="the API key is none") as refusal:
        Connection("http://127.0.0.1:1", "söcret")
    assert "söcret" not in str(refusal.value)
