"""The numbers of a job's training and evaluation."""

from enum import StrEnum
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from api.histories import Follow, RowHistory, answer_rows, row_position, stream_answers
from api.pagination import HistoryLimit
from api.schemas.histories import Metric, MetricPage
from api.schemas.problems import answers
from api.service import ServiceDep
from store import tables
from store.metrics import EVAL, TRAIN, list_metrics

router = APIRouter(tags=["histories"])


class Kind(StrEnum):
    train = TRAIN
    eval = EVAL


def _rows(kind: Kind | None, session: Session, job_id: str, after: int, limit: int) -> list[tables.Metric]:
    return list_metrics(session, job_id, kind, after, limit)


@router.get(
    "/jobs/{job_id}/metrics", response_model=MetricPage, responses=stream_answers() | answers(404, 406)
)
def job_metrics(
    request: Request,
    service: ServiceDep,
    job_id: str,
    after: Annotated[int, Depends(row_position)],
    kind: Annotated[Kind | None, Query(description="Only these")] = None,
    limit: HistoryLimit = 200,
    follow: Follow = None,
) -> MetricPage | Response:
    """The job's metrics in the order they were recorded: a page, or live as server-sent events."""
    history = RowHistory("metric", MetricPage, partial(_rows, kind), Metric.of)
    return answer_rows(request, service, history, job_id, after, limit, follow, key=("metrics", job_id, kind))
