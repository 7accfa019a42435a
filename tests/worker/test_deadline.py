import os
from pathlib import Path

import pytest

from worker.clock import boottime
from worker.deadline import Deadline


def written(path: Path) -> float:
    return float(path.read_text())


def test_the_deadline_is_one_lease_from_now(tmp_path: Path):
    path = tmp_path / "deadline"
    before = boottime()
    assert Deadline(path, ttl_s=60, outage_s=600).extend(renewed_at=before)
    assert before + 60 <= written(path)
    assert written(path) <= boottime() + 60


def test_without_an_answer_of_the_database_it_is_moved_until_the_outage_is_too_long(tmp_path: Path):
    path = tmp_path / "deadline"
    now = boottime()
    assert Deadline(path, ttl_s=60, outage_s=600).extend(renewed_at=now - 300)
    assert written(path) >= now + 59.9
    assert Deadline(path, ttl_s=60, outage_s=600).extend(renewed_at=now - 590)
    assert written(path) <= now + 11
    assert not Deadline(path, ttl_s=60, outage_s=600).extend(renewed_at=now - 601)


def test_an_outage_shorter_than_a_lease_changes_nothing(tmp_path: Path):
    assert Deadline(tmp_path / "deadline", ttl_s=60, outage_s=1).extend(renewed_at=boottime() - 50)


def test_the_file_is_only_written_when_that_moves_it_noticeably(tmp_path: Path):
    path = tmp_path / "deadline"
    deadline = Deadline(path, ttl_s=600, outage_s=600)
    deadline.extend(boottime())
    path.unlink()
    deadline.extend(boottime())
    assert not path.exists()


def test_a_deadline_that_cannot_be_moved_stays_as_it_was(tmp_path: Path):
    path = tmp_path / "deadline"
    deadline = Deadline(path, ttl_s=600, outage_s=600)
    deadline.extend(boottime() - 300)
    first = written(path)
    blocker = path.with_name(f".deadline.{os.getpid()}")
    blocker.mkdir()  # where the next one is written before it takes its place
    deadline.ttl_s = 900
    assert deadline.extend(boottime())
    assert written(path) == first
    blocker.rmdir()
    assert deadline.extend(boottime())
    assert written(path) > first


def test_without_a_first_deadline_nothing_starts(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        Deadline(tmp_path / "missing" / "deadline", ttl_s=60, outage_s=600).extend(boottime())
