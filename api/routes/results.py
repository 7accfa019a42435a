"""The final model of a job, in the same shape as a checkpoint."""

from fastapi import APIRouter, Request, Response

from api.access import require_result
from api.downloads import ARCHIVE_ANSWERS, FILE_ANSWERS, archive_response, file_response
from api.schemas.checkpoints import Checkpoint
from api.schemas.problems import answers
from api.service import ServiceDep

router = APIRouter(tags=["results"])


@router.get("/jobs/{job_id}/result", responses=answers(404))
def show(service: ServiceDep, job_id: str) -> Checkpoint:
    """The final model and its files."""
    return Checkpoint.of(require_result(service, job_id))


@router.get("/jobs/{job_id}/result/files/{path:path}", responses=FILE_ANSWERS, response_class=Response)
@router.head("/jobs/{job_id}/result/files/{path:path}", include_in_schema=False)
def download_file(request: Request, service: ServiceDep, job_id: str, path: str) -> Response:
    """One file, or the range of it that the Range header asks for."""
    return file_response(request, service.artifacts, require_result(service, job_id), path)


@router.get("/jobs/{job_id}/result/archive", responses=ARCHIVE_ANSWERS, response_class=Response)
@router.head("/jobs/{job_id}/result/archive", include_in_schema=False)
def download_archive(request: Request, service: ServiceDep, job_id: str) -> Response:
    """All files as one tar stream, in a folder named `result`."""
    return archive_response(request, service.artifacts, require_result(service, job_id))
