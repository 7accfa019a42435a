"""Files of OpenAI's API: the data sets that have a train split and no other."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from sqlalchemy import select, tuple_

from api.datasets.storing import FOLDER, store_upload
from api.datasets.upload import content_hash, explained_lack_of_room
from api.datasets.workspace import upload_folder
from api.downloads import stored_file_response
from api.openai_face.identifiers import FILE, bare
from api.openai_face.schemas import FileObject, ListOf
from api.openai_face.upload import ORIGINAL
from api.principal import Principal
from api.problems import ApiError, invalid, not_found
from api.service import Service
from store import tables
from store.artifacts import FileEntry
from store.datasets import find_dataset, split_file
from trainer.config.problems import Problem

LISTED_AT = "/v1/files"


def file_object(row: tables.Dataset) -> FileObject:
    """A data set as OpenAI's API shows a file."""
    return FileObject(
        id=FILE + row.id,
        bytes=_kept(row).bytes,
        created_at=int(row.created_at),
        filename=row.name or f"{row.id}.jsonl",
    )


def list_files(
    service: Service, principal: Principal, after: str | None, limit: int, newest_first: bool
) -> ListOf[FileObject]:
    """A part of the files behind the one of id `after`. Raises ApiError: 422 for an unknown one."""
    order = (tables.Dataset.created_at, tables.Dataset.id)
    query = select(tables.Dataset).order_by(*((each.desc() if newest_first else each) for each in order))
    if principal.visible_project is not None:
        query = query.where(tables.Dataset.project == principal.visible_project)
    with service.database.reading() as session:
        if after is not None:
            last = find_dataset(session, principal.visible_project, bare(after, FILE))
            if last is None:
                raise unknown_after(after, LISTED_AT)
            place = (last.created_at, last.id)
            query = query.where(tuple_(*order) < place if newest_first else tuple_(*order) > place)
        found = []
        for row in session.execute(query.execution_options(yield_per=200)).scalars():
            if is_file(row):
                found.append(row)
            if len(found) > limit:
                break
        return ListOf[FileObject](
            data=[file_object(row) for row in found[:limit]], has_more=len(found) > limit
        )


def unknown_after(after: str, listed_at: str) -> ApiError:
    msg = f"got {after[:80]!r}, which this list does not have"
    return invalid([Problem(("query", "after"), msg, f"Take the id of an item of GET {listed_at}.")])


def is_file(row: tables.Dataset) -> bool:
    """Whether a data set is a file of OpenAI's API."""
    return set(row.splits) == {"train"}


def require_file(service: Service, file_id: str) -> tables.Dataset:
    """The data set of a file. Raises ApiError (404)."""
    with service.database.reading() as session:
        row = find_dataset(session, None, bare(file_id, FILE))
    if row is None or not is_file(row):
        raise not_found("file", file_id, LISTED_AT)
    return row


def named_file(service: Service, principal: Principal, name: str, file_id: str) -> tables.Dataset:
    """The file that a field of a job names. Raises ApiError (422)."""
    with service.database.reading() as session:
        row = find_dataset(session, principal.project, bare(file_id, FILE))
    if row is None or not is_file(row):
        msg = f"there is no file {file_id!r}"
        raise invalid([Problem(("body", name), msg, "Upload it with purpose fine-tune first.")])
    return row


def content(request: Request, service: Service, row: tables.Dataset) -> Response:
    """The file as it was uploaded."""
    return stored_file_response(request, service.artifacts, row.key, _kept(row))


def _kept(row: tables.Dataset) -> FileEntry:
    """What the artifacts have of the upload: it as it came; of POST /datasets only the records."""
    about = row.splits["train"]
    if known := about.get(ORIGINAL):
        return FileEntry(ORIGINAL, known["bytes"], known["sha256"])
    return FileEntry(split_file("train"), about["bytes"], about["sha256"])


@dataclass
class _Joined:
    """Two files as the splits of one data set."""

    name: str | None
    kind: str
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        return content_hash({name: about["sha256"] for name, about in self.splits.items()})

    @property
    def size(self) -> int:
        return sum(about["bytes"] for about in self.splits.values())

    def about(self) -> dict[str, dict[str, Any]]:
        return self.splits


def joined(
    service: Service, principal: Principal, training: tables.Dataset, validation: tables.Dataset
) -> tables.Dataset:
    """The data set that has the one file as its train split and the other as its dev split.

    Raises: ApiError: 422 when they are of different kinds; 507.
    """
    if training.kind != validation.kind:
        msg = f"it is of kind {validation.kind}, and training_file of kind {training.kind}"
        raise invalid([Problem(("body", "validation_file"), msg, "Use files of the same format.")])
    both = _Joined(f"{training.name} with {validation.name}"[:200], training.kind)
    with explained_lack_of_room(), upload_folder(service.settings.data_dir / FOLDER) as folder:
        for split, row in (("train", training), ("dev", validation)):
            about = dict(row.splits["train"])
            about.pop(ORIGINAL, None)
            both.splits[split] = about
            _fetch(service, row, folder / split_file(split))
        return store_upload(service, principal, both, folder)[0]


def _fetch(service: Service, row: tables.Dataset, target: Path) -> None:
    with target.open("xb") as file:
        file.writelines(service.artifacts.open(f"{row.key}/{split_file('train')}"))
