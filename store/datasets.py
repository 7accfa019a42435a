"""Data sets: JSON lines that were uploaded, one file a split, immutable and kept once per project."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session, defer

from store.artifacts import Artifacts, Manifest
from store.clock import database_now
from store.errors import Conflict, NotFound
from store.jobs import DEFAULT_PROJECT, new_job_id
from store.pages import Page, cut_page, decode_cursor
from store.states import Status
from store.tables import Dataset, Job, JobInput

SPLITS = ("train", "dev", "quant")
MAX_PAGE = 1000
SHOWN_JOBS = 20
"""How many jobs a refusal to delete names."""
MOST_STATISTICS = 32
"""Results for models that are kept with a data set."""

new_dataset_id = new_job_id


class InUse(Conflict):
    """A data set that jobs still need; `job_ids` are the first of them."""

    def __init__(self, dataset_id: str, job_ids: list[str], count: int) -> None:
        shown = ", ".join(job_ids) + (" …" if count > len(job_ids) else "")
        jobs = "1 job needs" if count == 1 else f"{count} jobs need"
        super().__init__(f"{jobs} data set {dataset_id}: {shown}")
        self.job_ids = job_ids


@dataclass(frozen=True)
class NewDataset:
    """Checked data that lie complete among the artifacts under `key`.

    Attributes:
        kind: sft, dpo or kto.
        sha256: of the content of all splits; a project has it once.
        splits: by split, what the API shows of its file, `bytes` and `sha256` among it.
    """

    id: str
    kind: str
    sha256: str
    key: str
    bytes: int
    splits: Mapping[str, Mapping[str, Any]]
    name: str | None = None
    project: str = DEFAULT_PROJECT
    created_by: str = ""
    statistics: Mapping[str, Any] = field(default_factory=dict)


def dataset_key(dataset_id: str) -> str:
    """Where the artifacts have the files of a data set."""
    return f"datasets/{dataset_id}"


def split_file(split: str) -> str:
    """The name of a split's file below the data set's key."""
    return f"{split}.json"


def create_or_find(session: Session, new: NewDataset) -> tuple[Dataset, bool]:
    """The project's data set of this content, and whether this call has made it.

    Of several calls with the same content at a time one makes it; the others wait for it and get the same.
    """
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = insert(Dataset).values(
        id=new.id,
        project=new.project,
        name=new.name,
        kind=new.kind,
        sha256=new.sha256,
        key=new.key,
        bytes=new.bytes,
        splits={split: dict(about) for split, about in new.splits.items()},
        statistics=dict(new.statistics),
        created_at=database_now(session),
        created_by=new.created_by,
    )
    while True:
        session.execute(row.on_conflict_do_nothing())
        known = find_content(session, new.project, new.sha256)
        if known is not None:  # else somebody has deleted it in between
            return known, known.id == new.id


def find_content(session: Session, project: str, sha256: str) -> Dataset | None:
    """The project's data set with this content, None when it has none."""
    query = select(Dataset).where(Dataset.project == project, Dataset.sha256 == sha256)
    return session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()


def find_dataset(session: Session, project: str | None, dataset_id: str) -> Dataset | None:
    """The data set of this id, None when there is none or it belongs to another project (None: to any)."""
    query = select(Dataset).where(Dataset.id == dataset_id)
    if project is not None:
        query = query.where(Dataset.project == project)
    return session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()


def list_datasets(
    session: Session,
    *,
    limit: int,
    project: str | None = None,
    name: str | None = None,
    kind: str | None = None,
    cursor: str | None = None,
) -> Page[Dataset]:
    """Data sets that match all filters, newest first; without `project` those of all projects. They come
    without their statistics, which may be long.

    Raises: InvalidCursor; ValueError for a limit outside 1..1000.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit: got {limit}, expected 1 to {MAX_PAGE}")
    query = select(Dataset).order_by(Dataset.created_at.desc(), Dataset.id.desc()).limit(limit + 1)
    query = query.options(defer(Dataset.statistics, raiseload=True))
    for column, value in ((Dataset.project, project), (Dataset.name, name), (Dataset.kind, kind)):
        if value is not None:
            query = query.where(column == value)
    if cursor is not None:
        query = query.where(tuple_(Dataset.created_at, Dataset.id) < tuple_(*decode_cursor(cursor)))
    return cut_page(session.execute(query).scalars().all(), limit)


def keep_statistics(session: Session, dataset_id: str, name: str, values: Mapping[str, Any]) -> None:
    """Keep what was counted for a model with the data set; of very many the oldest give way."""
    query = select(Dataset.statistics).where(Dataset.id == dataset_id).with_for_update()
    known = session.execute(query).scalar_one_or_none()
    if known is None:
        return
    kept = [(key, value) for key, value in known.items() if key != name][-(MOST_STATISTICS - 1) :]
    changed = dict([*kept, (name, dict(values))])
    session.execute(update(Dataset).where(Dataset.id == dataset_id).values(statistics=changed))


def delete_dataset(session: Session, dataset_id: str) -> None:
    """Forget a data set that no job needs any more. Its row is held first, so that no new job can come in
    between; the caller deletes the artifacts in the same transaction.

    Raises: NotFound; InUse while a job uses it that is not finished, or that failed or was cancelled and may
        be retried.
    """
    held = select(Dataset.id).where(Dataset.id == dataset_id).with_for_update()
    if session.execute(held).scalar_one_or_none() is None:
        raise NotFound(f"there is no data set {dataset_id!r}")
    users = (
        select(Job.id)
        .join(JobInput, JobInput.job_id == Job.id)
        .where(JobInput.uses_dataset == dataset_id, Job.status != Status.succeeded)
        .distinct()
    )
    count = session.execute(select(func.count()).select_from(users.subquery())).scalar_one()
    if count:
        shown = session.execute(users.order_by(Job.id).limit(SHOWN_JOBS)).scalars()
        raise InUse(dataset_id, list(shown), count)
    session.execute(delete(Dataset).where(Dataset.id == dataset_id))


def fetch_dataset(artifacts: Artifacts, dataset: Dataset, folder: Path) -> Manifest:
    """Copy the files of a data set to `folder`, which must not exist: `train.json`, `dev.json`, `quant.json`,
    each where the data set has the split. It appears complete or not at all.

    Raises: FileNotFoundError, ArtifactError when the artifacts do not have them as they were stored.
    """
    return artifacts.fetch_directory(dataset.key, folder)
