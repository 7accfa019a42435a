"""Data sets: upload, check, list, show, download, forget."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response

from api.access import require_dataset
from api.datasets.bodies import FORM, LINES
from api.datasets.reading import records_page
from api.datasets.receiving import receive
from api.datasets.storing import delete_dataset, receiving, store_upload
from api.datasets.token_lengths import token_lengths
from api.datasets.upload import LONGEST_NAME, Upload
from api.downloads import FILE_ANSWERS, stored_file_response
from api.pagination import Cursor, PageLimit, valid_cursor
from api.principal import PrincipalDep
from api.problems import not_found
from api.schemas.datasets import (
    Dataset,
    DatasetCheck,
    DatasetPage,
    KindName,
    RecordPage,
    SplitName,
    TokenLengths,
)
from api.schemas.jobs import PRINTABLE
from api.schemas.problems import answers
from api.service import ServiceDep
from store import tables
from store.artifacts import FileEntry
from store.datasets import SPLITS, find_content, list_datasets, split_file

router = APIRouter(tags=["datasets"])

MOST_RECORDS = 200

SplitOfFiles = Annotated[SplitName, Query(description="What files belong to that do not say it themselves")]
Name = Annotated[str | None, Query(min_length=1, max_length=LONGEST_NAME, pattern=PRINTABLE)]
GivenKind = Annotated[
    KindName | None, Query(description="What all records must be; else the first one tells")
]
KNOWN: dict[int | str, dict[str, Any]] = {
    200: {"model": Dataset, "description": "The project has this content already: the data set that it is"}
}
_FILE = {"type": "string", "format": "binary", "description": "JSON lines, as they are or packed by gzip"}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "maxLength": LONGEST_NAME},
                        "kind": {"type": "string", "enum": ["sft", "dpo", "kto"]},
                        "split": {"type": "string", "enum": list(SPLITS)},
                        "file": _FILE | {"description": "JSON lines of the split named before it"},
                        **dict.fromkeys(SPLITS, _FILE),
                    },
                }
            },
            LINES[0]: {"schema": _FILE},
        },
    }
}
REFUSALS = answers(507)


@router.post("/datasets", status_code=201, responses=KNOWN | REFUSALS, openapi_extra=BODY)
async def upload(
    request: Request,
    response: Response,
    service: ServiceDep,
    principal: PrincipalDep,
    split: SplitOfFiles = "train",
    name: Name = None,
    kind: GivenKind = None,
) -> Dataset:
    """Store JSON lines. Every line is checked first, and nothing is stored when one cannot be used."""

    def make(folder: Path) -> Upload:
        return Upload(folder, service.settings.max_dataset_bytes, split, name, kind)

    async with receiving(service, make) as (received, folder):
        await receive(request, service, received)
        row, created = await anyio.to_thread.run_sync(
            partial(store_upload, service, principal, received, folder)
        )
    response.status_code = 201 if created else 200
    response.headers["Location"] = f"/datasets/{row.id}"
    return Dataset.of(row)


@router.post("/datasets/validate", responses=REFUSALS, openapi_extra=BODY)
async def validate(
    request: Request,
    service: ServiceDep,
    principal: PrincipalDep,
    split: SplitOfFiles = "train",
    name: Name = None,
    kind: GivenKind = None,
) -> DatasetCheck:
    """Everything that POST /datasets checks; nothing is stored."""
    received = Upload(None, service.settings.max_dataset_bytes, split, name, kind)
    await receive(request, service, received)
    known = await anyio.to_thread.run_sync(partial(_known, service, principal, received))
    return DatasetCheck.model_validate(
        {
            "kind": received.kind,
            "sha256": received.sha256,
            "bytes": received.size,
            "splits": received.about(),
            "known": known,
        }
    )


def _known(service: ServiceDep, principal: PrincipalDep, received: Upload) -> str | None:
    with service.database.reading() as session:
        row = find_content(session, principal.project, received.sha256)
        return row and row.id


@router.get("/datasets")
def list_all(
    service: ServiceDep,
    principal: PrincipalDep,
    name: Name = None,
    kind: KindName | None = None,
    limit: PageLimit = 50,
    cursor: Cursor = None,
) -> DatasetPage:
    """Data sets that match all filters, newest first."""
    with service.database.reading() as session, valid_cursor():
        page = list_datasets(
            session, limit=limit, project=principal.visible_project, name=name, kind=kind, cursor=cursor
        )
        return DatasetPage(items=[Dataset.of(row) for row in page.items], next_cursor=page.next_cursor)


@router.get("/datasets/{dataset_id}", responses=answers(404))
def show(service: ServiceDep, dataset_id: str) -> Dataset:
    """One data set: what it holds, and how much of it."""
    return Dataset.of(_find(service, dataset_id))


@router.get("/datasets/{dataset_id}/files/{split}", responses=FILE_ANSWERS, response_class=Response)
@router.head("/datasets/{dataset_id}/files/{split}", include_in_schema=False)
def download_file(request: Request, service: ServiceDep, dataset_id: str, split: str) -> Response:
    """The file of a split, or the range of it that the Range header asks for."""
    row = _with_split(service, dataset_id, split)
    about = row.splits[split]
    file = FileEntry(split_file(split), about["bytes"], about["sha256"])
    return stored_file_response(request, service.artifacts, row.key, file)


@router.get(
    "/datasets/{dataset_id}/records",
    responses={200: {"model": RecordPage}} | answers(404),
    response_model=None,
)
def show_records(
    service: ServiceDep,
    dataset_id: str,
    split: SplitName = "train",
    offset: Annotated[int, Query(ge=0, le=2**53, description="How many records to skip")] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_RECORDS, description="At most so many records")] = 20,
) -> Response:
    """Some records; fewer than `limit` where they are long."""
    row = _with_split(service, dataset_id, split)
    page = records_page(service.artifacts, row, split, offset, limit)
    return Response(page, media_type="application/json")


@router.get("/datasets/{dataset_id}/statistics", responses=answers(404))
async def show_statistics(
    service: ServiceDep,
    principal: PrincipalDep,
    dataset_id: str,
    model: Annotated[
        str,
        Query(
            min_length=1,
            max_length=1024,
            pattern=PRINTABLE,
            description="A model whose tokenizer is here: a folder or name, or `job:<id>`",
        ),
    ],
    split: SplitName = "train",
    max_length: Annotated[int, Query(ge=2, le=2**24, description="What a job would allow")] = 2048,
) -> TokenLengths:
    """How many tokens the records have for a model. It is counted once, and then kept."""
    row = await anyio.to_thread.run_sync(partial(_with_split, service, dataset_id, split))
    counted = await service.check(partial(token_lengths, service, principal, row, split, model, max_length))
    about = {"model": model, "split": split, "examples": row.splits[split]["examples"]}
    return TokenLengths.model_validate({**about, "max_length": max_length, **counted})


@router.delete("/datasets/{dataset_id}", status_code=204, responses=answers(404, 409))
def delete(service: ServiceDep, principal: PrincipalDep, dataset_id: str) -> None:
    """Forget a data set that no job needs: none that is not finished, and none that may be retried."""
    delete_dataset(service, principal, dataset_id)


def _find(service: ServiceDep, dataset_id: str) -> tables.Dataset:
    with service.database.reading() as session:
        return require_dataset(session, dataset_id)


def _with_split(service: ServiceDep, dataset_id: str, split: str) -> tables.Dataset:
    row = _find(service, dataset_id)
    if split not in row.splits:
        raise not_found("split", split, f"/datasets/{dataset_id}")
    return row
