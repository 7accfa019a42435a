"""The numbered lines of an attempt on their way to a real broker and a real archive."""

import os
from pathlib import Path

import pytest
from redis.exceptions import RedisError

from store.artifacts import LocalArtifacts
from store.broker import Broker
from store.logs import START, LogArchive, LogLine, LogStream
from store.settings import Settings
from worker.shipping import ArchiveShipper, StreamShipper
from worker.spool import Spool, SpoolReader
from worker.workspace import AttemptFolder, Workspace

JOB = "a-job"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    folder = Workspace(tmp_path / "workspace").attempt(1)
    folder.path.mkdir(parents=True)
    return folder


@pytest.fixture
def archive(tmp_path: Path) -> LogArchive:
    return LogArchive(LocalArtifacts(tmp_path / "artifacts"))


def write(folder: AttemptFolder, *lines: str, rank: int = 0) -> None:
    with folder.raw_log(rank).open("a") as raw:
        raw.writelines(f"{line}\n" for line in lines)


def spooled(folder: AttemptFolder) -> list[LogLine]:
    return SpoolReader(folder).read()[0]


def texts(lines: list[LogLine]) -> list[str]:
    return [line.line for line in lines]


class TestSpool:
    def test_lines_of_all_ranks_are_numbered_in_one_row(self, folder: AttemptFolder):
        spool = Spool(folder)
        write(folder, "a", "b")
        write(folder, "c", rank=1)
        assert spool.collect()
        write(folder, "d")
        assert spool.collect()
        assert not spool.collect()
        numbered = [(line.attempt, line.seq, line.rank, line.line) for line in spooled(folder)]
        assert numbered == [(1, 1, 0, "a"), (1, 2, 0, "b"), (1, 3, 1, "c"), (1, 4, 0, "d")]

    def test_the_next_process_goes_on_where_the_last_one_was_interrupted(self, folder: AttemptFolder):
        write(folder, "a", "b")
        Spool(folder).collect()
        write(folder, "c")
        Spool(folder).collect()
        assert [(line.seq, line.line) for line in spooled(folder)] == [(1, "a"), (2, "b"), (3, "c")]

    @pytest.mark.parametrize("lost", [1, 5, 40, 75])
    def test_a_torn_last_row_is_numbered_again(self, folder: AttemptFolder, lost: int):
        write(folder, "a", "b")
        Spool(folder).collect()
        os.truncate(folder.spool, folder.spool.stat().st_size - lost)
        write(folder, "c")
        Spool(folder).collect()
        assert [(line.seq, line.line) for line in spooled(folder)] == [(1, "a"), (2, "b"), (3, "c")]

    def test_a_reader_finds_its_place_by_number(self, folder: AttemptFolder):
        write(folder, *"abcde")
        Spool(folder).collect()
        reader = SpoolReader(folder)
        reader.seek(3)
        assert texts(reader.read()[0]) == ["d", "e"]
        reader.seek(0)
        assert texts(reader.read(1)[0]) == ["a"]
        reader.seek(99)
        assert reader.read()[0] == []


class TestArchive:
    def test_lines_wait_for_the_next_flush_and_are_compacted_at_the_end(
        self, folder: AttemptFolder, archive: LogArchive
    ):
        shipper = ArchiveShipper(archive, JOB, folder, flush_s=3600)
        write(folder, "a")
        shipper.step(False)
        assert list(archive.read(JOB)) == []
        write(folder, "b")
        while shipper.step(True):
            pass
        assert texts(list(archive.read(JOB))) == ["a", "b"]

    def test_another_process_continues_behind_what_is_archived(
        self, folder: AttemptFolder, archive: LogArchive
    ):
        write(folder, "a", "b")
        first = ArchiveShipper(archive, JOB, folder, flush_s=0)
        while first.step(False):
            pass
        write(folder, "c")
        second = ArchiveShipper(archive, JOB, folder, flush_s=0)
        while second.step(True):
            pass
        assert [(line.seq, line.line) for line in archive.read(JOB)] == [(1, "a"), (2, "b"), (3, "c")]

    def test_steady_output_is_archived_while_it_goes_on(self, folder: AttemptFolder, archive: LogArchive):
        shipper = ArchiveShipper(archive, JOB, folder, flush_s=0)
        for number in range(3):
            write(folder, str(number))
            shipper.step(False)
        assert texts(list(archive.read(JOB))) == ["0", "1", "2"]


class TestStream:
    @pytest.fixture
    def stream(self, broker: Broker, settings: Settings) -> LogStream:
        return LogStream(settings.broker_url)

    def test_another_process_sends_only_what_the_broker_has_not(
        self, folder: AttemptFolder, stream: LogStream
    ):
        write(folder, "a", "b")
        Spool(folder).collect()
        assert StreamShipper(stream, JOB, folder).step(False)
        write(folder, "c")
        Spool(folder).collect()
        shipper = StreamShipper(stream, JOB, folder)
        assert shipper.step(False)
        assert not shipper.step(False)
        assert texts(stream.read(JOB, START)) == ["a", "b", "c"]

    def test_what_the_broker_has_lost_is_sent_again(
        self, folder: AttemptFolder, stream: LogStream, broker: Broker
    ):
        shipper = StreamShipper(stream, JOB, folder)
        write(folder, "a")
        Spool(folder).collect()
        shipper.step(False)
        kept = stream.read(JOB, START)
        write(folder, "b")
        Spool(folder).collect()
        shipper.step(False)
        stream.delete(JOB)
        stream.append(JOB, kept)
        write(folder, "c")
        Spool(folder).collect()
        while shipper.step(False):
            pass
        assert texts(stream.read(JOB, START)) == ["a", "b", "c"]

    def test_an_absent_broker_is_an_error_and_nothing_is_lost(
        self, folder: AttemptFolder, stream: LogStream, broker: Broker
    ):
        write(folder, "a")
        Spool(folder).collect()
        shipper = StreamShipper(stream, JOB, folder)
        broker.stop()
        with pytest.raises(RedisError):
            shipper.step(False)
        assert texts(spooled(folder)) == ["a"]
