"""Rows of data sets."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from store.artifacts import LocalArtifacts
from store.database import Database
from store.datasets import (
    MOST_STATISTICS,
    InUse,
    NewDataset,
    create_or_find,
    dataset_key,
    delete_dataset,
    fetch_dataset,
    find_dataset,
    keep_statistics,
    list_datasets,
    new_dataset_id,
)
from store.errors import NotFound
from store.states import Status
from store.tables import Job, JobInput, Project
from tests.store.given import queued_job


def new_dataset(content: str = "a", **changes: Any) -> NewDataset:
    dataset_id = new_dataset_id()
    new = NewDataset(
        id=dataset_id,
        kind="sft",
        sha256=content * 64,
        key=dataset_key(dataset_id),
        bytes=10,
        splits={"train": {"bytes": 10, "sha256": content * 64}},
    )
    return replace(new, **changes)


def test_the_same_content_is_the_same_data_set_in_a_project(database: Database) -> None:
    with database.transaction() as session:
        session.add(Project(name="other", created_at=0.0))
        session.flush()
        first, created = create_or_find(session, new_dataset(name="first"))
        again, created_again = create_or_find(session, new_dataset(name="second"))
        assert (created, created_again, again.id, again.name) == (True, False, first.id, "first")
        _, elsewhere = create_or_find(session, new_dataset(project="other"))
        assert elsewhere


def test_of_many_at_a_time_one_makes_it(database: Database) -> None:
    made: list[tuple[str, bool]] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait(10)
        with database.transaction() as session:
            row, created = create_or_find(session, new_dataset())
            made.append((row.id, created))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len({row_id for row_id, _ in made}) == 1
    assert sorted(created for _, created in made) == [False] * 7 + [True]


def test_a_data_set_is_found_in_its_project_only(database: Database) -> None:
    with database.transaction() as session:
        row, _ = create_or_find(session, new_dataset())
    with database.reading() as session:
        for project, found in (("default", True), (None, True), ("other", False)):
            assert (find_dataset(session, project, row.id) is not None) == found
        assert find_dataset(session, None, "unknown") is None


def test_lists_are_filtered_and_go_on_where_they_ended(database: Database) -> None:
    with database.transaction() as session:
        for content, name, kind in (
            ("a", "x", "sft"),
            ("b", "y", "dpo"),
            ("c", "x", "kto"),
            ("d", "x", "sft"),
        ):
            create_or_find(session, new_dataset(content, name=name, kind=kind))
    with database.reading() as session:
        seen, cursor = [], None
        while True:
            page = list_datasets(session, limit=2, name="x", cursor=cursor)
            seen += [row.sha256[0] for row in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert seen == ["d", "c", "a"]
        assert [row.sha256[0] for row in list_datasets(session, limit=9, kind="dpo").items] == ["b"]
        assert list_datasets(session, limit=9, project="other").items == []


@pytest.mark.parametrize(
    ("status", "deletable"),
    [
        (Status.queued, False),
        (Status.running, False),
        (Status.failed, False),
        (Status.cancelled, False),
        (Status.succeeded, True),
    ],
)
def test_a_data_set_goes_when_no_job_can_need_it(database: Database, status: Status, deletable: bool) -> None:
    with database.transaction() as session:
        row, _ = create_or_find(session, new_dataset())
        job = queued_job(session)
        session.add(JobInput(job_id=job.id, argument="dataset_name_or_path", uses_dataset=row.id))
        session.add(JobInput(job_id=job.id, argument="dev_dataset_path", uses_dataset=row.id))
        session.get_one(Job, job.id).status = status
    with database.transaction() as session:
        if deletable:
            delete_dataset(session, row.id)
            with pytest.raises(NotFound):
                delete_dataset(session, row.id)
        else:
            with pytest.raises(InUse, match="1 job needs") as refusal:
                delete_dataset(session, row.id)
            assert refusal.value.job_ids == [job.id]


def test_statistics_of_models_are_kept_up_to_a_number(database: Database) -> None:
    with database.transaction() as session:
        row, _ = create_or_find(session, new_dataset())
        for number in range(MOST_STATISTICS + 3):
            keep_statistics(session, row.id, f"model {number}", {"mean": number})
        keep_statistics(session, row.id, "model 10", {"mean": -1})
        found = find_dataset(session, None, row.id)
        assert found is not None
        assert len(found.statistics) == MOST_STATISTICS
        assert "model 0" not in found.statistics
        assert found.statistics["model 10"] == {"mean": -1}
        keep_statistics(session, "unknown", "model", {})


def test_the_files_are_fetched_by_split(database: Database, tmp_path: Path) -> None:
    artifacts = LocalArtifacts(tmp_path / "artifacts")
    new = new_dataset()
    (tmp_path / "upload").mkdir()
    (tmp_path / "upload" / "train.json").write_text('{"src": "q", "tgt": "a"}\n')
    artifacts.publish_directory(tmp_path / "upload", new.key)
    with database.transaction() as session:
        row, _ = create_or_find(session, new)
    fetch_dataset(artifacts, row, tmp_path / "workspace" / "inputs" / "data")
    assert (tmp_path / "workspace/inputs/data/train.json").read_text() == '{"src": "q", "tgt": "a"}\n'
