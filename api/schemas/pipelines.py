"""The body of POST /pipelines, and pipelines as every call shows them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.pagination import Page
from api.schemas.common import Links, Time, rfc3339, rfc3339_or_none
from api.schemas.jobs import JobName, JobRequest, Progress
from store import tables
from store.pipelines import PipelineState, PipelineStatus
from store.states import Status

MOST_JOBS = 50
STEP = r"^[a-z][a-z0-9_-]{0,30}$"
StepName = Annotated[str, StringConstraints(pattern=STEP)]


class PipelineJobRequest(JobRequest):
    """A job, and the name by which the others of the pipeline refer to it (`job:<id>`)."""

    id: StepName = Field(description="Unique in the pipeline: others write job:<id> for its result")


class PipelineRequest(BaseModel):
    """Jobs that are checked as a whole and stored together, or not at all."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: JobName | None = Field(None, description="For people; need not be unique")
    jobs: list[PipelineJobRequest] = Field(min_length=1, max_length=MOST_JOBS)


class PipelineJob(BaseModel):
    """A job of a pipeline, in short."""

    step: str = Field(description="Its name in the pipeline")
    id: str
    task: str
    status: Status
    reason: str
    message: str
    needs: list[str] = Field(description="The steps whose results it uses")
    progress: Progress
    started_at: Time | None
    finished_at: Time | None
    links: Links

    @classmethod
    def of(cls, row: tables.Job, needs: tuple[str, ...], waits_for: str) -> "PipelineJob":
        return cls(
            step=row.pipeline_step or "",
            id=row.id,
            task=row.task,
            status=Status(row.status),
            reason=row.reason,
            message=waits_for or row.message,
            needs=list(needs),
            progress=Progress(**Progress.members_of(row)),
            started_at=rfc3339_or_none(row.started_at),
            finished_at=rfc3339_or_none(row.finished_at),
            links={"self": f"/jobs/{row.id}"},
        )


class Pipeline(BaseModel):
    """Jobs that were posted together."""

    id: str
    project: str
    name: str | None
    status: PipelineStatus = Field(
        description="queued until a job has started, running until all have ended, then the worst end"
    )
    created_by: str
    created_at: Time
    jobs: list[PipelineJob]
    links: Links

    @classmethod
    def of(cls, state: PipelineState, waits_for: dict[str, str]) -> "Pipeline":
        own = f"/pipelines/{state.pipeline.id}"
        jobs = [
            PipelineJob.of(job, state.needs.get(job.id, ()), waits_for.get(job.id, "")) for job in state.jobs
        ]
        return cls(
            id=state.pipeline.id,
            project=state.pipeline.project,
            name=state.pipeline.name,
            status=state.status,
            created_by=state.pipeline.created_by,
            created_at=rfc3339(state.pipeline.created_at),
            jobs=jobs,
            links={"self": own, "cancel": f"{own}/cancel"},
        )


class PipelinePage(Page[Pipeline]):
    """Pipelines, newest first."""
