import pytest

from cli.client import Client
from cli.errors import ApiError, ServerAway
from cli.sse import Event, EventParser, follow
from tests.cli.scripted_server import answer, serving, stream


def parse(*chunks: bytes) -> list[Event]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_an_event_has_a_type_data_and_an_id() -> None:
    assert parse(b'id: 1-4\nevent: log\ndata: {"line":"a"}\n\n') == [Event("log", '{"line":"a"}', "1-4")]


def test_data_of_several_lines_is_joined_and_the_default_type_is_message() -> None:
    assert parse(b"data: a\ndata:b\ndata:  c\n\n") == [Event("message", "a\nb\n c", "")]


def test_comments_and_events_without_data_are_not_events() -> None:
    assert parse(b": ping\n\nevent: log\n\nid: 7\n\n") == []


def test_an_id_stays_until_another_comes() -> None:
    assert [event.id for event in parse(b"id: 7\ndata: a\n\ndata: b\n\n")] == ["7", "7"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_format_is_understood_wherever_the_bytes_are_cut(end: bytes) -> None:
    whole = end.join([b"id: 1", "data: Größe\u2028x".encode(), b"", b"data: b", b"", b": more", b""])
    expected = [Event("message", "Größe\u2028x", "1"), Event("message", "b", "1")]
    for cut in range(len(whole)):
        assert parse(whole[:cut], whole[cut:]) == expected


def test_an_event_that_was_cut_leaves_no_id_behind() -> None:
    parser = EventParser("5")
    parser.feed(b"id: 6\ndata: half")
    assert parser.last_id == "5"


def test_the_server_may_set_the_pause_before_the_next_connection() -> None:
    parser = EventParser()
    parser.feed(b"retry: 250\n\n")
    assert parser.retry_s == 0.25


def test_a_cut_stream_is_resumed_after_the_last_whole_event() -> None:
    first = stream(b"retry: 1\nid: 1\ndata: a\n\nid: 2\ndata: b\n\nid: 3\ndata: hal")
    second = stream(b"id: 3\ndata: half\n\nevent: end\ndata: {}\n\n")
    with serving(first, second) as server, Client(server.url) as client:
        events = list(follow(client, "/jobs/j/logs", {"tail": 5}))
    assert [event.data for event in events] == ["a", "b", "half", "{}"]
    assert [headers.get("last-event-id") for _, headers in server.requests] == [None, "2"]


def test_a_server_that_restarts_is_asked_again() -> None:
    away = answer(503, b"{}")
    with (
        serving(away, stream(b"id: 1\ndata: a\n\nevent: end\ndata: {}\n\n")) as server,
        Client(server.url) as client,
    ):
        assert [event.data for event in follow(client, "/x")] == ["a", "{}"]


def test_a_refusal_is_final() -> None:
    missing = answer(404, b'{"title": "No such job", "detail": "no job j"}', "application/problem+json")
    with serving(missing) as server, Client(server.url) as client, pytest.raises(ApiError, match="no job j"):
        list(follow(client, "/x"))
    assert len(server.requests) == 1


def test_patience_with_a_silent_address_ends() -> None:
    with serving(answer(200, b"{}")) as server:
        url = server.url
    with Client(url) as client, pytest.raises(ServerAway, match="No Regatta server answers at"):
        list(follow(client, "/x", patience_s=0))
