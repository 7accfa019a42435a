"""Artifacts of what was forgotten."""

from collections.abc import Callable
from pathlib import Path

import pytest

from store.artifacts import LocalArtifacts
from store.database import Database
from store.tombstones import bury, sweep


@pytest.fixture
def artifacts(tmp_path: Path) -> LocalArtifacts:
    artifacts = LocalArtifacts(tmp_path / "artifacts")
    for job in (1, 2):
        artifacts.put_bytes(f"jobs/{job}/a", b"")
    return artifacts


def test_what_was_buried_is_removed_once(database: Database, artifacts: LocalArtifacts) -> None:
    with database.transaction() as session:
        bury(session, "jobs/1")
        bury(session, "jobs/1")
        bury(session, "jobs/nothing")
    assert sweep(database, artifacts, "jobs/2") == 0
    assert sweep(database, artifacts) == 2
    assert sweep(database, artifacts) == 0
    assert artifacts.list("jobs") == ["jobs/2/a"]


def test_nothing_is_removed_when_the_owner_was_not_forgotten(
    database: Database, artifacts: LocalArtifacts
) -> None:
    with pytest.raises(ValueError, match="no"), database.transaction() as session:
        _fail_after(bury, session, "jobs/1")
    assert sweep(database, artifacts) == 0
    assert artifacts.list("jobs/1") == ["jobs/1/a"]


def _fail_after(work: Callable[..., None], *arguments: object) -> None:
    work(*arguments)
    raise ValueError("no")


def test_a_removal_that_fails_is_made_up_for(database: Database, artifacts: LocalArtifacts) -> None:
    with database.transaction() as session:
        bury(session, "jobs/1")
    folder = artifacts.root / ".tmp"
    folder.rmdir()
    folder.touch()
    with pytest.raises(OSError, match="exists"):
        sweep(database, artifacts)
    folder.unlink()
    assert sweep(database, artifacts) == 1
    assert artifacts.list("jobs/1") == []
