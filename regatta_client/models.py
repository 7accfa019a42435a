"""The documents of the API. Written by `python -m api.client_models`: do not change it by hand.

Words that are known are listed; others, which a later server may say, are taken as they are.
"""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

Status = Literal["queued", "starting", "running", "stopping", "succeeded", "failed", "cancelled"] | str


Reason = (
    Literal[
        "submitted",
        "retried",
        "placed",
        "started",
        "completed",
        "cancel_requested",
        "user_cancelled",
        "bad_config",
        "bad_data",
        "out_of_memory",
        "nan_loss",
        "timed_out",
        "trainer_crashed",
        "trainer_killed",
        "artifacts_unavailable",
        "host_failed",
        "host_lost",
        "device_error",
        "start_timeout",
        "host_stopping",
        "preempted",
        "dependency_failed",
    ]
    | str
)


Fault = Literal["user", "data", "infrastructure", "nobody"] | str


class QueuePlace(BaseModel):
    """Where a queued job stands among those that wait for devices of the same kind."""

    position: int | None
    """Counts from 1; null while it waits for other jobs, and behind the first 1000"""
    ahead: int | None
    """Jobs that are before it; 1000 means as many or more; null while it waits for other jobs"""
    why: str
    """What it waits for"""


class Resources(BaseModel):
    nodes: int
    devices_per_node: int
    device: str


class Placement(BaseModel):
    """One host's part of the current attempt."""

    host: str
    devices: list[int]
    ranks: list[int] = []
    """Numbers of its trainer processes among those of all hosts"""


class Progress(BaseModel):
    """How far the current attempt is; null until it has said so."""

    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    total_epochs: float | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    eta_s: float | None = None
    """Seconds left at the present speed, while it runs"""


class Evidence(BaseModel):
    """What is known of the last attempt's end where it has failed, or of the job that this one waited for."""

    attempt: int | None = None
    host: str | None = None
    message: str | None = None
    """What was said of the end; the job's may speak of its wait"""
    exit_code: int | None = None
    """Negative for a signal; null when the trainer never ran"""
    signal: str | None = None
    """Name of the signal that ended the trainer"""
    log: list[str] = []
    """The last lines of its log, of all ranks"""
    argument: str | None = None
    """Which argument refers to the job that was needed"""
    job: str | None = None
    """The job that was needed"""
    checkpoint: str | None = None
    status: str | None = None
    """Status of the job that was needed"""
    reason: str | None = None
    """Reason of the job that was needed"""


class MemoryParts(BaseModel):
    """Bytes of one device, by what they are for; together they are the memory."""

    weights: int
    """The model and its adapter"""
    gradients: int
    optimizer_state: int
    """AdamW's two moments"""
    master_weights: int
    """float32 copies of 16-bit weights"""
    activations: int
    """What the backward pass needs of the forward pass"""
    loss: int
    """Logits, and the gradient of the vocabulary projection while it is made"""
    reference_model: int
    """The frozen model of dpo and kto"""
    buffers: int
    """Copies for clipping, communication and checkpoints; statistics"""
    allocator: int
    """What the allocator takes from the system and cannot use"""
    runtime: int
    """Python, Paddle and its libraries"""


class Memory(BaseModel):
    """The memory of the fullest device."""

    bytes: int
    moment: str
    """When it holds most"""
    stage: int | None
    """Of the pipeline, from 0; null without one"""
    parts: MemoryParts


class SplitTokens(BaseModel):
    """The tokens of one split, an epoch long."""

    records: int
    sampled: int | None
    """How many records were tokenized; null: all"""
    examples: int
    """Records that can be learned from"""
    tokens: int
    """Of all examples, without padding"""
    label_tokens: int
    """Of them learned"""
    longest: int
    """Tokens of the longest example"""
    rows: int
    """What batches are made of: an example each, or packs of them"""
    batch_tokens: int
    """Most tokens of a micro-batch, without padding"""
    batch_labels: int
    """Of them learned"""
    padding_share: float
    """Of a batch, as the config says"""
    packed_padding_share: float | None
    """The same if examples were packed (zero_padding)"""


class Checkpoints(BaseModel):
    """What is written; the small files beside weights and optimizer state are not counted."""

    bytes: int
    """Of one checkpoint"""
    weights_bytes: int
    """Of them weights; the final model has as many"""
    optimizer_bytes: int
    """Of them optimizer state"""
    saves: int | None
    """How many checkpoints are written"""
    kept: int | None
    """How many are left at the end"""
    total_bytes: int | None
    """Most that lies there at a time"""


class Estimate(BaseModel):
    """What a job will take; null: not known yet, and `notes` says why."""

    parameters: int | None
    """Of the model and its adapter"""
    trainable_parameters: int | None
    adapter_parameters: int | None
    memory: Memory | None
    data: dict[str, SplitTokens] | None
    """By split"""
    optimizer_steps: int | None
    """Of the whole run"""
    tokens_per_step: int | None
    """On average, without padding"""
    run_tokens: int | None
    """Of the whole run, without padding"""
    checkpoints: Checkpoints | None
    notes: list[str]
    """What was assumed, and why something is not known"""


class ProblemItem(BaseModel):
    """One thing that is wrong with the request."""

    loc: list[str | int]
    """Where: `body`, `query`, `path` or `header`, then the names down to the value"""
    msg: str
    """What came and what was expected"""
    hint: str
    """What to do; may be empty"""


class JobWebhook(BaseModel):
    """A job's webhook."""

    url: str
    """Without the values of its query"""
    events: list[
        Literal[
            "job.queued",
            "job.starting",
            "job.running",
            "job.stopping",
            "job.succeeded",
            "job.failed",
            "job.cancelled",
        ]
        | str
    ]
    disabled_at: datetime | None
    """Since then the receiver wants nothing more (it answered 410)"""
    secret: str | None = None
    """Only in the answer that has created the job, when the server has made it"""


class Job(BaseModel):
    """A job. `status` says where it stands, `reason` and `message` why."""

    id: str
    project: str
    submitted_by: str
    """The key that made it: name and prefix; `local` without keys"""
    name: str | None
    task: str
    status: Status
    reason: Reason
    message: str
    fault: Fault | None
    """Who can do something about the reason; null where nothing is wrong"""
    retry_helps: bool
    """Whether the same job may succeed when it is tried again as it is"""
    queue: QueuePlace | None
    """Null unless the job is queued"""
    not_before: datetime | None
    """A queued job rests until then"""
    pipeline_id: str | None
    pipeline_step: str | None
    """Its name in the pipeline"""
    attempt: int
    """Counts from 1; a retry or a lost host raises it"""
    priority: int
    max_retries: int
    timeout_s: float | None
    labels: dict[str, str]
    resources: Resources
    placement: list[Placement] | None
    progress: Progress
    created_at: datetime
    """RFC 3339, UTC"""
    updated_at: datetime
    """RFC 3339, UTC"""
    queued_at: datetime
    """RFC 3339, UTC"""
    started_at: datetime | None
    finished_at: datetime | None
    links: dict[str, str]
    """Addresses of what belongs to this, by name"""
    evidence: Evidence | None
    config: dict[str, Any]
    """As given, without secrets"""
    resolved_config: dict[str, Any]
    """As run: every argument, absolute paths"""
    estimate: Estimate | None
    """What it was reckoned to take when it was made"""
    warnings: list[ProblemItem]
    webhook: JobWebhook | None


class PreviewToken(BaseModel):
    """One token of an example."""

    id: int
    text: str
    learned: bool
    """Whether the model learns to write it; else it is masked"""
    response: Literal["chosen", "rejected", "desirable", "undesirable"] | str | None = None
    """With preference data: the response that it belongs to; null in the prompt"""


class PreviewExample(BaseModel):
    """One record as it would be trained on."""

    location: str
    """File and line"""
    tokens: list[PreviewToken]
    """Of more than 4096 the first and the last 2048"""
    length: int
    """How many tokens it has"""
    label_tokens: int
    """How many tokens are learned"""
    cut: bool
    """The answer was cut, so that it has no end"""
    lost_turns: int
    """Earlier turns that did not fit"""
    left_out: str | None
    """Why the record is not trained on"""


class Preview(BaseModel):
    """The first records of the data, token by token."""

    split: str
    template: str | None
    """File of the chat template; null: raw text"""
    examples: list[PreviewExample]


class Validation(BaseModel):
    """What POST /jobs would store for the same body."""

    task: str
    config: dict[str, Any]
    """As given, without secrets"""
    resolved_config: dict[str, Any]
    """As it would run: every argument, absolute paths"""
    resources: Resources
    statistics: dict[str, Any]
    """What the data holds, such as examples per split"""
    warnings: list[ProblemItem]
    estimate: Estimate | None = None
    """What it will take; null while a reference of the config is not there yet"""
    preview: Preview | None = None
    """With `?preview=N`: the first N training records"""


class Event(BaseModel):
    """Something that happened to a job."""

    id: int
    """Position in the history; what `after` and Last-Event-ID take"""
    project: str | None
    """Whose; null: of the whole service"""
    job_id: str | None
    """null for what concerns no single job, such as keys"""
    time: datetime
    """RFC 3339, UTC"""
    type: str
    """`status` for a change of status, `changed` for PATCH, else what the trainer reported"""
    attempt: int
    actor: str
    """Who did it: a key, `local`, `scheduler` or `host <name>`"""
    from_status: str | None
    to_status: str | None
    reason: str | None
    message: str
    data: dict[str, Any]


class Metric(BaseModel):
    """The numbers of one step. When a later attempt repeats a step, they are replaced, under a new id."""

    id: int
    """Position in the history; what `after` and Last-Event-ID take"""
    time: datetime
    """RFC 3339, UTC"""
    kind: str
    """`train` or `eval`"""
    step: int
    attempt: int
    values: dict[str, Any]
    """By name; null where the number was not finite"""


class LogLine(BaseModel):
    """One line that a rank of the trainer wrote."""

    cursor: str
    """Position in the history; what `after` and Last-Event-ID take"""
    time: datetime
    """RFC 3339, UTC"""
    attempt: int
    rank: int
    line: str


class File(BaseModel):
    path: str
    """Relative, with forward slashes"""
    bytes: int
    sha256: str
    url: str


class Checkpoint(BaseModel):
    """Weights that a job has published, complete and unchanging."""

    name: str
    job_id: str
    step: int | None
    attempt: int
    best: bool
    metrics: dict[str, Any]
    bytes: int
    """Sum over the files"""
    files: list[File]
    created_at: datetime
    """RFC 3339, UTC"""
    links: dict[str, str]
    """Addresses of what belongs to this, by name"""


class LengthBin(BaseModel):
    up_to: int | None
    """Longest length in this bin; null: no end"""
    examples: int


class Lengths(BaseModel):
    """How long records are; the edges of the histogram are the same for all data."""

    total: int
    mean: float
    max: int
    histogram: list[LengthBin]


class Split(BaseModel):
    examples: int
    turns: int
    bytes: int
    sha256: str
    characters: Lengths
    """Of all texts of a record together"""
    url: str
    """Where its file is"""


class Dataset(BaseModel):
    """JSON lines of one kind, one file a split; immutable."""

    id: str
    name: str | None
    kind: Literal["sft", "dpo", "kto"] | str
    """What they are for: sft for task finetune and quantize, dpo, kto"""
    project: str
    sha256: str
    """Of the content; a project has it once"""
    bytes: int
    """Sum over the splits"""
    splits: dict[str, Split]
    reference: str
    """What a config says to use it"""
    created_at: datetime
    """RFC 3339, UTC"""
    created_by: str
    links: dict[str, str]
    """Addresses of what belongs to this, by name"""


PipelineStatus = Literal["queued", "running", "succeeded", "failed", "cancelled"] | str


class PipelineJob(BaseModel):
    """A job of a pipeline, in short."""

    step: str
    """Its name in the pipeline"""
    id: str
    task: str
    status: Status
    reason: str
    message: str
    needs: list[str]
    """The steps whose results it uses"""
    progress: Progress
    started_at: datetime | None
    finished_at: datetime | None
    links: dict[str, str]
    """Addresses of what belongs to this, by name"""


class Pipeline(BaseModel):
    """Jobs that were posted together."""

    id: str
    project: str
    name: str | None
    status: PipelineStatus
    """queued until a job has started, running until all have ended, then the worst end"""
    created_by: str
    created_at: datetime
    """RFC 3339, UTC"""
    jobs: list[PipelineJob]
    links: dict[str, str]
    """Addresses of what belongs to this, by name"""


class RunningPart(BaseModel):
    """The part of a job's attempt that a host runs."""

    job_id: str | None
    """null for a job of another project"""
    attempt: int
    rank: int
    devices: list[int]


class Host(BaseModel):
    """A machine with devices."""

    name: str
    device: str
    """Kind of its devices"""
    devices: list[dict[str, Any]]
    labels: dict[str, Any]
    info: dict[str, Any]
    accepts_jobs: bool
    """Whether its worker takes jobs"""
    cordoned: bool
    """Whether an administrator keeps new jobs away"""
    draining: bool
    """Whether what runs there is to stop and go on elsewhere"""
    cordon_reason: str
    excluded: bool
    """Whether it gets no jobs because of attempts that failed there"""
    exclusion_reason: str
    """What has failed there; empty when nothing has excluded it"""
    excluded_until: datetime | None
    """null: until it is uncordoned, if it is excluded"""
    alive: bool
    """Whether its last heartbeat is fresh enough to get jobs"""
    registered_at: datetime
    """RFC 3339, UTC"""
    heartbeat_at: datetime
    """RFC 3339, UTC"""
    running: list[RunningPart]
