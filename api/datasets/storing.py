"""Stores an upload that is complete and right, once per project and content; removes a data set."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy.orm import Session

from api.access import require_dataset
from api.changes import remove_buried
from api.datasets.upload import Upload, explained_lack_of_room
from api.datasets.workspace import note_key, upload_folder
from api.principal import Principal
from api.problems import ApiError
from api.service import Service
from store import datasets, tables
from store.audit import add_action
from store.tombstones import bury

Received = TypeVar("Received", bound=Upload)
FOLDER = "uploads"
"""Below the data directory."""


@asynccontextmanager
async def receiving(
    service: Service, make: Callable[[Path], Received]
) -> AsyncIterator[tuple[Received, Path]]:
    """An upload and the folder that it is written to, both gone at the end whatever happens.

    Args:
        make: the upload that is written to a folder.
    """
    stack = ExitStack()

    def begin() -> tuple[Received, Path]:
        with explained_lack_of_room():
            folder = stack.enter_context(
                upload_folder(service.settings.data_dir / FOLDER, partial(_discard, service))
            )
            upload = make(folder)
        stack.callback(upload.close)
        return upload, folder

    try:
        yield await anyio.to_thread.run_sync(begin)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(stack.close)


class Complete(Protocol):
    """Data whose files lie in a folder, complete and right."""

    name: str | None

    @property
    def kind(self) -> str: ...

    @property
    def sha256(self) -> str:
        """Of the content of all splits."""
        ...

    @property
    def size(self) -> int: ...

    def about(self) -> dict[str, dict[str, Any]]:
        """What is kept of each split."""
        ...


def store_upload(
    service: Service, principal: Principal, upload: Complete, folder: Path
) -> tuple[tables.Dataset, bool]:
    """The data set of this content, which lies in `folder`, and whether this call has made it.

    Raises: ApiError (507) when there is no room among the artifacts.
    """
    with service.database.reading() as session:
        known = datasets.find_content(session, principal.project, upload.sha256)
    if known is not None:
        _publish_again(service, known, folder)
        return known, False
    dataset_id = datasets.new_dataset_id()
    new = datasets.NewDataset(
        id=dataset_id,
        kind=upload.kind,
        sha256=upload.sha256,
        key=datasets.dataset_key(dataset_id),
        bytes=upload.size,
        splits=upload.about(),
        name=upload.name,
        project=principal.project,
        created_by=principal.actor,
    )
    with ExitStack() as undo:
        undo.callback(partial(service.artifacts.delete_prefix, new.key))
        with explained_lack_of_room():
            note_key(folder, new.key)
        _publish(service, folder, new.key)
        with service.database.transaction() as session:
            row, created = datasets.create_or_find(session, new)
            if created:
                _note(session, principal, "dataset_created", row)
        if created:
            undo.pop_all()
    return row, created


def delete_dataset(service: Service, principal: Principal, dataset_id: str) -> None:
    """Forget a data set and its files. Raises ApiError: 404; 409 while jobs may need it.

    Its files go once it is forgotten, as those of a job do.
    """
    with service.database.transaction() as session:
        row = require_dataset(session, dataset_id)
        try:
            datasets.delete_dataset(session, dataset_id)
        except datasets.InUse as error:
            detail = f"{error}. It can go once they have succeeded or are deleted."
            raise ApiError("conflict", detail, jobs=error.job_ids) from error
        _note(session, principal, "dataset_deleted", row)
        bury(session, row.key)
    remove_buried(service, row.key)


def _discard(service: Service, key: str) -> None:
    """Remove what was published for a data set that was never recorded."""
    with service.database.reading() as session:
        if datasets.find_dataset(session, None, key.rpartition("/")[2]) is None:
            service.artifacts.delete_prefix(key)


def _publish(service: Service, folder: Path, key: str) -> None:
    with explained_lack_of_room():
        service.artifacts.publish_directory(folder, key)


def _publish_again(service: Service, known: tables.Dataset, folder: Path) -> None:
    """Files that a crash has taken from a data set come back with the same upload."""
    try:
        service.artifacts.manifest(known.key)
    except FileNotFoundError:
        _publish(service, folder, known.key)


def _note(session: Session, principal: Principal, kind: str, row: tables.Dataset) -> None:
    add_action(
        session,
        kind,
        f"data set {row.id}" + (f" ({row.name})" if row.name else ""),
        project=row.project,
        actor=principal.actor,
        data={"dataset_id": row.id, "sha256": row.sha256, "bytes": row.bytes},
    )
