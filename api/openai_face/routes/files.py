"""Files: upload, list, show, download, forget."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response

from api.datasets.bodies import FORM
from api.datasets.receiving import receive
from api.datasets.storing import delete_dataset, receiving, store_upload
from api.downloads import FILE_ANSWERS
from api.openai_face import files
from api.openai_face.errors import refusals
from api.openai_face.schemas import DeletedFile, FileObject, ListOf
from api.openai_face.upload import PURPOSE, FineTuneForm, TrainingFile
from api.principal import PrincipalDep
from api.service import ServiceDep

BODY = {
    "requestBody": {
        "required": True,
        "content": {
            FORM: {
                "schema": {
                    "type": "object",
                    "required": ["file", "purpose"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "purpose": {"type": "string", "enum": [PURPOSE]},
                    },
                }
            }
        },
    }
}
CONTENT = {status: answer for status, answer in FILE_ANSWERS.items() if int(status) < 400}
router = APIRouter(prefix="/v1/files", tags=["openai"])


@router.post("", responses=refusals(507), openapi_extra=BODY)
async def upload(request: Request, service: ServiceDep, principal: PrincipalDep) -> FileObject:
    """Store a training file; every line is checked first."""

    def make(folder: Path) -> TrainingFile:
        return TrainingFile(folder, service.settings.max_dataset_bytes)

    async with receiving(service, make) as (training_file, folder):
        await receive(
            request, service, training_file, lambda _, boundary: FineTuneForm(training_file, boundary)
        )
        row, _ = await anyio.to_thread.run_sync(
            partial(store_upload, service, principal, training_file, folder)
        )
    return files.file_object(row)


@router.get("")
def list_all(
    service: ServiceDep,
    principal: PrincipalDep,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
    order: Literal["asc", "desc"] = "desc",
    purpose: str | None = None,
) -> ListOf[FileObject]:
    """Files; all of them are to be trained on."""
    if purpose not in (None, PURPOSE):
        return ListOf[FileObject](data=[], has_more=False)
    return files.list_files(service, principal, after, limit, newest_first=order == "desc")


@router.get("/{file_id}", responses=refusals(404))
def show(service: ServiceDep, file_id: str) -> FileObject:
    """One file."""
    return files.file_object(files.require_file(service, file_id))


@router.get("/{file_id}/content", responses=CONTENT | refusals(404, 416), response_class=Response)
def content(request: Request, service: ServiceDep, file_id: str) -> Response:
    """The file as it was uploaded."""
    return files.content(request, service, files.require_file(service, file_id))


@router.delete("/{file_id}", responses=refusals(404, 409))
def delete(service: ServiceDep, principal: PrincipalDep, file_id: str) -> DeletedFile:
    """Forget a file that no job needs."""
    row = files.require_file(service, file_id)
    delete_dataset(service, principal, row.id)
    return DeletedFile(id=file_id)
