"""Log lines: the stream, the archive, and one reader of both."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from store.artifacts import LocalArtifacts
from store.broker import Broker, ensure_broker
from store.errors import InvalidCursor
from store.logs import START, LogArchive, LogLine, LogStream, Position, parse_position, read_logs, tail_logs
from store.logs import archive as archive_module
from store.logs.stream import stream_key
from store.settings import Settings
from tests.store.waiting import wait_until

JOB = "job-1"


def lines(attempt: int, first: int, last: int) -> list[LogLine]:
    """Lines `first` to `last` of an attempt, by turns of two trainer processes."""
    return [
        LogLine(attempt, seq, 1.5, seq % 2, f"{attempt}:{seq} ü\n\ud800") for seq in range(first, last + 1)
    ]


@pytest.fixture
def stream(broker: Broker) -> Iterator[LogStream]:
    stream = LogStream(broker.url)
    yield stream
    stream.close()


@pytest.fixture
def archive(tmp_path: Path) -> LogArchive:
    return LogArchive(LocalArtifacts(tmp_path / "artifacts"))


def positions(found: list[LogLine]) -> list[tuple[int, int]]:
    return [(line.attempt, line.seq) for line in found]


def numbers(attempt: int, first: int, last: int) -> list[tuple[int, int]]:
    return [(attempt, seq) for seq in range(first, last + 1)]


def test_a_position_is_its_own_cursor() -> None:
    assert parse_position(str(Position(3, 141))) == Position(3, 141)
    assert str(START) == "0-0"


@pytest.mark.parametrize("text", ["", "1", "1-", "-1", "a-1", "1-1-1", "1-1\n", "1-" + "9" * 30, "\u0661-1"])
def test_other_text_is_no_cursor(text: str) -> None:
    with pytest.raises(InvalidCursor, match="expected <attempt>-<line number>"):
        parse_position(text)


def test_a_batch_that_is_sent_again_is_refused_by_the_server(stream: LogStream) -> None:
    assert stream.append(JOB, lines(1, 1, 3)) == Position(1, 3)
    assert stream.append(JOB, lines(1, 1, 3)) == Position(1, 3)
    assert stream.append(JOB, lines(1, 2, 3)) == Position(1, 3)
    assert stream.read(JOB, START) == lines(1, 1, 3)


def test_a_batch_that_would_leave_a_gap_is_refused_with_the_place_to_go_on(stream: LogStream) -> None:
    stream.append(JOB, lines(1, 1, 3))
    assert stream.append(JOB, lines(1, 6, 7)) == Position(1, 3)
    assert stream.append(JOB, lines(1, 4, 7)) == Position(1, 7)


def test_an_earlier_attempt_cannot_write_behind_a_later_one(stream: LogStream) -> None:
    stream.append(JOB, lines(1, 1, 3))
    stream.append(JOB, lines(2, 1, 1))
    assert stream.append(JOB, lines(1, 4, 5)) == Position(2, 1)
    assert stream.position(JOB) == Position(2, 1)


def test_a_stream_is_bounded_expires_and_can_be_dropped(broker: Broker) -> None:
    stream = LogStream(broker.url, entries=10)
    for seq in range(1, 501):
        stream.append(JOB, lines(1, seq, seq))
    with redis.Redis.from_url(broker.url) as client:
        assert client.xlen(stream_key(JOB)) < 200
        assert 0 < client.ttl(stream_key(JOB)) <= 3600
    stream.delete(JOB)
    assert stream.position(JOB) is None
    stream.close()


def test_archived_lines_come_back_in_order_from_any_position(archive: LogArchive) -> None:
    for attempt, first, last in ((1, 1, 3), (1, 4, 4), (2, 1, 12), (2, 13, 20)):
        archive.append(JOB, lines(attempt, first, last))
    everything = lines(1, 1, 4) + lines(2, 1, 20)
    assert list(archive.read(JOB)) == everything
    for after in (
        Position(1, 0),
        Position(1, 2),
        Position(1, 4),
        Position(2, 12),
        Position(2, 20),
        Position(9, 9),
    ):
        assert list(archive.read(JOB, after)) == [line for line in everything if line.position > after]
    assert archive.position(JOB, 1) == Position(1, 4)
    assert archive.position(JOB, 3) == Position(3, 0)
    assert archive.tail(JOB, 9) == everything[-9:]
    assert archive.tail(JOB, 10_000) == everything
    assert list(archive.read("another job")) == []


def test_segments_that_overlap_are_read_once(archive: LogArchive) -> None:
    archive.append(JOB, lines(1, 1, 5))
    archive.append(JOB, lines(1, 1, 5))
    archive.append(JOB, lines(1, 4, 8))
    assert list(archive.read(JOB)) == lines(1, 1, 8)
    assert archive.tail(JOB, 4) == lines(1, 5, 8)


def test_compaction_leaves_few_segments_and_the_same_lines(
    archive: LogArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_module, "SEGMENT_BYTES", 2000)
    for first in range(1, 101, 5):
        archive.append(JOB, lines(1, first, first + 4))
    archive.append(JOB, lines(2, 1, 3))
    archive.compact(JOB, 1)
    archive.compact(JOB, 1)
    segments = sorted((tmp_path / "artifacts").rglob("*.jsonl"))
    assert 1 < len(segments) < 8
    assert all(segment.stat().st_size <= 2000 for segment in segments)
    assert list(archive.read(JOB)) == lines(1, 1, 100) + lines(2, 1, 3)
    assert archive.position(JOB, 1) == Position(1, 100)


def test_compaction_under_a_reader_is_not_noticed(archive: LogArchive) -> None:
    for first in range(1, 41, 10):
        archive.append(JOB, lines(1, first, first + 9))
    reading = archive.read(JOB)
    begun = [next(reading) for _ in range(12)]
    archive.compact(JOB, 1)
    assert begun + list(reading) == lines(1, 1, 40)


def test_the_stream_alone_is_enough_while_it_has_everything(stream: LogStream, archive: LogArchive) -> None:
    stream.append(JOB, lines(1, 1, 5))
    page = read_logs(stream, archive, JOB, limit=3)
    assert page.lines == lines(1, 1, 3)
    page = read_logs(stream, archive, JOB, after=page.position)
    assert (page.lines, page.position) == (lines(1, 4, 5), Position(1, 5))
    assert read_logs(stream, archive, JOB, after=page.position).lines == []


def test_the_archive_fills_in_what_the_stream_has_forgotten(stream: LogStream, archive: LogArchive) -> None:
    archive.append(JOB, lines(1, 1, 10))
    stream.append(JOB, lines(1, 6, 15))
    stream.append(JOB, lines(2, 1, 2))
    page = read_logs(stream, archive, JOB)
    assert positions(page.lines) == numbers(1, 1, 15) + numbers(2, 1, 2)


def test_what_an_attempt_wrote_while_the_broker_was_away_comes_before_the_next_attempt(
    stream: LogStream, archive: LogArchive
) -> None:
    stream.append(JOB, lines(1, 1, 3))
    archive.append(JOB, lines(1, 1, 9))  # the rest of it never reached the broker
    stream.append(JOB, lines(3, 1, 2))
    archive.append(JOB, lines(2, 1, 4))  # nor did anything of the second
    everything = numbers(1, 1, 9) + numbers(2, 1, 4) + numbers(3, 1, 2)
    for complete in (False, True):
        assert positions(read_logs(stream, archive, JOB, complete=complete).lines) == everything
        page = read_logs(stream, archive, JOB, after=Position(1, 3), limit=7, complete=complete)
        assert positions(page.lines) == everything[3:10]


def test_a_line_that_is_on_its_way_is_waited_for_until_the_job_is_over(
    stream: LogStream, archive: LogArchive
) -> None:
    archive.append(JOB, lines(1, 1, 4))
    stream.append(JOB, lines(1, 7, 8))
    page = read_logs(stream, archive, JOB)
    assert positions(page.lines) == numbers(1, 1, 4)
    assert read_logs(stream, archive, JOB, after=page.position).lines == []
    over = read_logs(stream, archive, JOB, after=page.position, complete=True)
    assert positions(over.lines) == numbers(1, 7, 8)
    archive.append(JOB, lines(1, 5, 6))
    page = read_logs(stream, archive, JOB, after=page.position)
    assert positions(page.lines) == numbers(1, 5, 8)


def test_lines_that_were_lost_with_a_host_are_passed_once_a_later_attempt_has_written(
    stream: LogStream, archive: LogArchive
) -> None:
    archive.append(JOB, lines(1, 1, 4))
    archive.append(JOB, lines(1, 9, 12))
    assert positions(read_logs(stream, archive, JOB).lines) == numbers(1, 1, 4)
    archive.compact(JOB, 1)  # what is missing may still come
    archive.append(JOB, lines(2, 1, 2))
    there = numbers(1, 1, 4) + numbers(1, 9, 12) + numbers(2, 1, 2)
    assert positions(read_logs(stream, archive, JOB).lines) == there
    archive.append(JOB, lines(1, 5, 8))
    assert positions(read_logs(stream, archive, JOB).lines) == numbers(1, 1, 12) + numbers(2, 1, 2)


def test_lines_of_one_trainer_process_are_found_among_the_others(
    stream: LogStream, archive: LogArchive
) -> None:
    archive.append(JOB, lines(1, 1, 30))
    stream.append(JOB, lines(1, 20, 40))
    seen, after = [], START
    while (page := read_logs(stream, archive, JOB, after=after, limit=4, rank=1)).position != after:
        assert len(page.lines) <= 4
        seen, after = seen + page.lines, page.position
    assert positions(seen) == [(1, seq) for seq in range(1, 41, 2)]
    assert after == Position(1, 40)


def test_the_tail_comes_from_whichever_side_has_it(stream: LogStream, archive: LogArchive) -> None:
    assert tail_logs(stream, archive, JOB, 3).lines == []
    archive.append(JOB, lines(1, 1, 20))
    assert positions(tail_logs(stream, archive, JOB, 3).lines) == numbers(1, 18, 20)
    stream.append(JOB, lines(1, 15, 22))
    page = tail_logs(stream, archive, JOB, 3)
    assert (positions(page.lines), page.position) == (numbers(1, 20, 22), Position(1, 22))
    assert positions(tail_logs(stream, archive, JOB, 9).lines) == numbers(1, 14, 22)
    assert positions(tail_logs(stream, archive, JOB, 99).lines) == numbers(1, 1, 22)
    assert positions(tail_logs(stream, archive, JOB, 4, rank=0).lines) == [(1, 16), (1, 18), (1, 20), (1, 22)]
    assert tail_logs(stream, archive, JOB, 99, rank=7).lines == []


def test_without_a_broker_the_archive_answers(settings: Settings, archive: LogArchive) -> None:
    stream = LogStream(settings.broker_url)
    archive.append(JOB, lines(1, 1, 5))
    assert read_logs(stream, archive, JOB).lines == lines(1, 1, 5)
    assert tail_logs(stream, archive, JOB, 2).lines == lines(1, 4, 5)
    with pytest.raises(redis.RedisError):
        stream.append(JOB, lines(1, 6, 6))


def test_after_a_kill_of_the_broker_shipping_goes_on_where_it_was(settings: Settings) -> None:
    broker = ensure_broker(settings.data_dir)
    stream = LogStream(broker.url)
    stream.append(JOB, lines(1, 1, 3))
    os.kill(broker.pid, signal.SIGKILL)
    wait_until(lambda: not broker.is_alive())
    broker = ensure_broker(settings.data_dir)
    try:
        assert stream.append(JOB, lines(1, 1, 3)) == Position(1, 3)
        assert stream.append(JOB, lines(1, 4, 5)) == Position(1, 5)
        assert stream.read(JOB, START) == lines(1, 1, 5)
    finally:
        broker.stop()
