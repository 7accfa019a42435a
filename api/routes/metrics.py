"""The numbers of a job's training and evaluation."""

from enum import StrEnum
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session

from api.access import require_job
from api.histories import Follow, RowHistory, answer_rows, row_position, stream_answers
from api.negotiation import EVENTS, JSON, negotiate
from api.pagination import HistoryLimit
from api.problems import invalid
from api.schemas.histories import Metric, MetricPage
from api.schemas.problems import answers
from api.service import ServiceDep
from store import tables
from store.metrics import EVAL, TRAIN, list_metrics, thinned_metrics
from trainer.config.problems import Problem

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
    points: Annotated[
        int | None,
        Query(
            ge=100,
            le=5000,
            description="In place of a page: about so many of all there are, with the lowest and the highest "
            "of each number in each stretch; wants `kind`",
        ),
    ] = None,
) -> MetricPage | Response:
    """The job's metrics in the order they were recorded: a page, all of them thinned to a number that can be
    drawn, or live as server-sent events.
    """
    if points is not None:
        return _thinned(request, service, job_id, kind, points, after, follow)
    history = RowHistory("metric", MetricPage, partial(_rows, kind), Metric.of)
    return answer_rows(request, service, history, job_id, after, limit, follow, key=("metrics", job_id, kind))


def _thinned(
    request: Request,
    service: ServiceDep,
    job_id: str,
    kind: Kind | None,
    points: int,
    after: int,
    follow: bool | None,
) -> MetricPage:
    media_type = negotiate(request, (JSON, EVENTS), follow=follow)
    problems = []
    if kind is None:
        problems.append(
            Problem(("query", "kind"), "is missing, but points are of one kind", "Send kind=train.")
        )
    if media_type == EVENTS or after:
        msg = "are of the whole history, but a part of it is asked for"
        problems.append(Problem(("query", "points"), msg, "Follow behind the last id of what points gave."))
    if problems or kind is None:
        raise invalid(problems)
    with service.database.reading() as session:
        require_job(session, job_id)
        rows, thinned = thinned_metrics(session, job_id, kind, points)
    return MetricPage(items=[Metric.of(row) for row in rows], next_cursor=None, thinned=thinned)
