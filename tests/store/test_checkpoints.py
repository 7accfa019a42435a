"""Checkpoint rows."""

from dataclasses import replace
from typing import Any

from store.artifacts import FileEntry, Manifest
from store.checkpoints import (
    RESULT,
    Published,
    get_checkpoint,
    list_checkpoints,
    record_checkpoint,
    remove_checkpoint,
)
from store.database import Database
from tests.store.given import queued_job

MANIFEST = Manifest((FileEntry("model.safetensors", 10, "a" * 64), FileEntry("config.json", 5, "b" * 64)))


def published(name: str, step: int | None, **changes: Any) -> Published:
    return replace(Published(name, f"jobs/x/{name}", MANIFEST, step), **changes)


def test_checkpoints_are_listed_by_step_and_the_result_apart(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        record_checkpoint(session, job.id, 1, published("checkpoint-12", 12, metrics={"eval_loss": 0.5}))
        record_checkpoint(session, job.id, 1, published("checkpoint-6", 6))
        record_checkpoint(session, job.id, 1, published(RESULT, 12))
    with database.reading() as session:
        assert [row.name for row in list_checkpoints(session, job.id)] == ["checkpoint-6", "checkpoint-12"]
        row = get_checkpoint(session, job.id, "checkpoint-12")
        assert row is not None
        assert (row.step, row.bytes, row.metrics, row.is_result) == (12, 15, {"eval_loss": 0.5}, False)
        assert row.files[0] == {"path": "model.safetensors", "bytes": 10, "sha256": "a" * 64}
        result = get_checkpoint(session, job.id, RESULT)
        assert result is not None
        assert result.is_result


def test_a_checkpoint_of_the_same_name_is_replaced(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        record_checkpoint(session, job.id, 1, published("checkpoint-6", 6))
        record_checkpoint(session, job.id, 2, published("checkpoint-6", 6, key="elsewhere"))
        (row,) = list_checkpoints(session, job.id)
        assert (row.attempt, row.key) == (2, "elsewhere")


def test_only_the_latest_best_checkpoint_is_best(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        for step in (1, 2):
            record_checkpoint(session, job.id, 1, published(f"checkpoint-{step}", step, best=True))
        record_checkpoint(session, job.id, 1, published("checkpoint-3", 3))
    with database.reading() as session:
        assert [row.name for row in list_checkpoints(session, job.id) if row.best] == ["checkpoint-2"]


def test_a_removed_checkpoint_is_gone(database: Database) -> None:
    with database.transaction() as session:
        job = queued_job(session)
        record_checkpoint(session, job.id, 1, published("checkpoint-6", 6))
        assert remove_checkpoint(session, job.id, "checkpoint-6")
        assert not remove_checkpoint(session, job.id, "checkpoint-6")
    with database.reading() as session:
        assert get_checkpoint(session, job.id, "checkpoint-6") is None
