"""Server-sent events are parsed as a browser does."""

import pytest

from regatta_client.sse import Event, EventParser


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
