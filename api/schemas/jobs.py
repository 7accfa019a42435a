"""The body of POST /jobs and the job as every call shows it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from api.pagination import Page
from api.schemas.common import Links, Time
from api.schemas.estimates import Estimate
from api.schemas.problems import ProblemItem
from api.schemas.webhooks import JobWebhook, WebhookRequest
from store.queue import MOST_COUNTED
from store.reasons import Fault, Reason
from store.secrets import MOST_SECRETS
from store.states import Status
from trainer.config import TASKS

MOST_LABELS = 64
MOST_NODES = 1024
MOST_DEVICES = 64
"""On one node."""
MOST_TOKENS = 4096
NOT_SEEN = "The scheduler has not looked at it yet."
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"
JobName = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=PRINTABLE)]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
LabelValue = Annotated[str, StringConstraints(max_length=200, pattern=PRINTABLE)]
Device = Literal["cpu", "gpu"]


class ResourcesRequest(BaseModel):
    """The devices that a job asks for: together a multiple of what its config's parallel degrees need. Each
    multiple takes data of its own.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    nodes: int = Field(1, ge=1, le=MOST_NODES, description="Hosts, each with devices_per_node devices")
    devices_per_node: int | None = Field(
        None, ge=1, le=MOST_DEVICES, description="Devices on each host; default: what the config needs"
    )
    device: Device | None = Field(
        None, description="Kind of device; default: the config's `device`, else gpu where a host has one"
    )


class JobRequest(BaseModel):
    """A task and its argument file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    task: str = Field(description="What to do", json_schema_extra={"enum": list(TASKS)})
    config: dict[str, Any] = Field(
        description="The argument file, with PaddleNLP's names; GET /schemas/{task} describes it"
    )
    name: JobName | None = Field(None, description="For people and for the `name` filter; need not be unique")
    resources: ResourcesRequest | None = Field(
        None, description="Default: one host with what the config needs"
    )
    priority: int = Field(0, ge=-1000, le=1000, description="Higher runs first; equal ones in order of age")
    max_retries: int = Field(
        0, ge=0, le=100, description="How often a failed attempt is repeated; lost hosts do not count"
    )
    timeout_s: float | None = Field(
        None, gt=0, le=10 * 365 * 86400, description="Longest time an attempt may run"
    )
    labels: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, max_length=MOST_LABELS, description="For filters"
    )
    secrets: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        max_length=MOST_SECRETS,
        description="Values for the trainer's environment by name, such as HF_TOKEN; never shown again",
    )
    webhook: WebhookRequest | None = Field(None, description="Where to announce its changes of status")
    force: bool = Field(
        False, description="Queue it even if it needs more memory than any device that is known"
    )


class Resources(BaseModel):
    nodes: int
    devices_per_node: int
    device: str


class Progress(BaseModel):
    """How far the current attempt is; null until it has said so."""

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    eta_s: float | None = Field(None, description="Seconds left at the present speed, while it runs")

    @classmethod
    def members_of(cls, row: Any) -> dict[str, Any]:
        """The members for a job or a row of one."""
        members = {name: row.progress.get(name) for name in cls.model_fields}
        return members if row.status == Status.running else members | {"eta_s": None}


class Placement(BaseModel):
    """One host's part of the current attempt."""

    host: str
    devices: list[int]
    ranks: list[int] = Field(
        default_factory=list, description="Numbers of its trainer processes among those of all hosts"
    )


class Evidence(BaseModel):
    """What is known of the last attempt's end where it has failed, or of the job that this one waited for."""

    attempt: int | None = None
    host: str | None = None
    message: str | None = Field(None, description="What was said of the end; the job's may speak of its wait")
    exit_code: int | None = Field(None, description="Negative for a signal; null when the trainer never ran")
    signal: str | None = Field(None, description="Name of the signal that ended the trainer")
    log: list[str] = Field(default_factory=list, description="The last lines of its log, of all ranks")
    argument: str | None = Field(None, description="Which argument refers to the job that was needed")
    job: str | None = Field(None, description="The job that was needed")
    checkpoint: str | None = None
    status: str | None = Field(None, description="Status of the job that was needed")
    reason: str | None = Field(None, description="Reason of the job that was needed")


class QueuePlace(BaseModel):
    """Where a queued job stands among those that wait for devices of the same kind."""

    position: int | None = Field(
        description=f"Counts from 1; null while it waits for other jobs, and behind the first {MOST_COUNTED}"
    )
    ahead: int | None = Field(
        description=f"Jobs that are before it; {MOST_COUNTED} means as many or more; null while it waits for "
        "other jobs"
    )
    why: str = Field(description="What it waits for")


class JobSummary(BaseModel):
    """A job without its config. `status` says where it stands, `reason` and `message` why."""

    id: str
    project: str
    submitted_by: str = Field(description="The key that made it: name and prefix; `local` without keys")
    name: str | None
    task: str
    status: Status
    reason: Reason
    message: str
    fault: Fault | None = Field(
        description="Who can do something about the reason; null where nothing is wrong"
    )
    retry_helps: bool = Field(description="Whether the same job may succeed when it is tried again as it is")
    queue: QueuePlace | None = Field(description="Null unless the job is queued")
    not_before: Time | None = Field(description="A queued job rests until then")
    pipeline_id: str | None
    pipeline_step: str | None = Field(description="Its name in the pipeline")
    attempt: int = Field(description="Counts from 1; a retry or a lost host raises it")
    priority: int
    max_retries: int
    timeout_s: float | None
    labels: dict[str, str]
    resources: Resources
    placement: list[Placement] | None
    progress: Progress
    created_at: Time
    updated_at: Time
    queued_at: Time
    started_at: Time | None
    finished_at: Time | None
    links: Links


class Job(JobSummary):
    """A job. `status` says where it stands, `reason` and `message` why."""

    evidence: Evidence | None
    config: dict[str, Any] = Field(description="As given, without secrets")
    resolved_config: dict[str, Any] = Field(description="As run: every argument, absolute paths")
    estimate: Estimate | None = Field(description="What it was reckoned to take when it was made")
    warnings: list[ProblemItem]
    webhook: JobWebhook | None


class JobPage(Page[Job]):
    """Jobs, newest first."""


class JobSummaryPage(Page[JobSummary]):
    """Jobs without their configs, newest first."""


class PreviewToken(BaseModel):
    """One token of an example."""

    id: int
    text: str
    learned: bool = Field(description="Whether the model learns to write it; else it is masked")
    response: Literal["chosen", "rejected", "desirable", "undesirable"] | None = Field(
        default=None, description="With preference data: the response that it belongs to; null in the prompt"
    )


class PreviewExample(BaseModel):
    """One record as it would be trained on."""

    location: str = Field(description="File and line")
    tokens: list[PreviewToken] = Field(
        description=f"Of more than {MOST_TOKENS} the first and the last {MOST_TOKENS // 2}"
    )
    length: int = Field(description="How many tokens it has")
    label_tokens: int = Field(description="How many tokens are learned")
    cut: bool = Field(description="The answer was cut, so that it has no end")
    lost_turns: int = Field(description="Earlier turns that did not fit")
    left_out: str | None = Field(description="Why the record is not trained on")


class Preview(BaseModel):
    """The first records of the data, token by token."""

    split: str
    template: str | None = Field(description="File of the chat template; null: raw text")
    examples: list[PreviewExample]


class Validation(BaseModel):
    """What POST /jobs would store for the same body."""

    task: str
    config: dict[str, Any] = Field(description="As given, without secrets")
    resolved_config: dict[str, Any] = Field(description="As it would run: every argument, absolute paths")
    resources: Resources
    statistics: dict[str, Any] = Field(description="What the data holds, such as examples per split")
    warnings: list[ProblemItem]
    estimate: Estimate | None = Field(
        default=None, description="What it will take; null while a reference of the config is not there yet"
    )
    preview: Preview | None = Field(
        default=None, description="With `?preview=N`: the first N training records"
    )
