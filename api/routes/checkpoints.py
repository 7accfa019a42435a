"""Checkpoints of a job: listed, shown and downloaded."""

from fastapi import APIRouter, Request, Response

from api.access import require_checkpoint, require_job
from api.downloads import ARCHIVE_ANSWERS, FILE_ANSWERS, archive_response, file_response
from api.pagination import Cursor, PageLimit, part_of
from api.schemas.checkpoints import Checkpoint, CheckpointPage
from api.schemas.problems import answers
from api.service import ServiceDep
from store.checkpoints import list_checkpoints

router = APIRouter(tags=["checkpoints"])


@router.get("/jobs/{job_id}/checkpoints", responses=answers(404))
def list_all(
    service: ServiceDep, job_id: str, limit: PageLimit = 50, cursor: Cursor = None
) -> CheckpointPage:
    """The checkpoints that the job keeps, by step."""
    with service.database.reading() as session:
        require_job(session, job_id)
        rows, next_cursor = part_of(list_checkpoints(session, job_id), lambda row: row.name, limit, cursor)
    return CheckpointPage(items=[Checkpoint.of(row) for row in rows], next_cursor=next_cursor)


@router.get("/jobs/{job_id}/checkpoints/{name}", responses=answers(404))
def show(service: ServiceDep, job_id: str, name: str) -> Checkpoint:
    """One checkpoint and its files."""
    return Checkpoint.of(require_checkpoint(service, job_id, name))


@router.get(
    "/jobs/{job_id}/checkpoints/{name}/files/{path:path}", responses=FILE_ANSWERS, response_class=Response
)
@router.head("/jobs/{job_id}/checkpoints/{name}/files/{path:path}", include_in_schema=False)
def download_file(request: Request, service: ServiceDep, job_id: str, name: str, path: str) -> Response:
    """One file, or the range of it that the Range header asks for."""
    return file_response(request, service.artifacts, require_checkpoint(service, job_id, name), path)


@router.get("/jobs/{job_id}/checkpoints/{name}/archive", responses=ARCHIVE_ANSWERS, response_class=Response)
@router.head("/jobs/{job_id}/checkpoints/{name}/archive", include_in_schema=False)
def download_archive(request: Request, service: ServiceDep, job_id: str, name: str) -> Response:
    """All files as one tar stream, in a folder of the checkpoint's name."""
    return archive_response(request, service.artifacts, require_checkpoint(service, job_id, name))
