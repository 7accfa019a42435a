"""The tables. Times are unix seconds; JSON columns hold what the API shows as it is."""

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    String,
    TypeDecorator,
    UniqueConstraint,
    text,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship


class PlainText(TypeDecorator[str]):
    """Text without what PostgreSQL cannot store: NUL characters and halves of surrogate pairs."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isprintable() and value.isascii()):
            return value
        return value.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")


JsonValue = JSON(none_as_null=True)  # not JSONB, which forgets the order of keys and refuses some texts
RowId = BigInteger().with_variant(Integer, "sqlite")
Id = PlainText(36)
Name = PlainText(255)
Word = PlainText(32)
Text = PlainText()


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {float: Double(), dict[str, Any]: JsonValue, list[dict[str, Any]]: JsonValue}  # noqa: RUF012


class Project(Base):
    """Whose jobs, data sets and secrets are kept apart from all others', and how much it may use at once.

    A limit that is empty is none.
    """

    __tablename__ = "projects"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    most_queued: Mapped[int | None]
    most_running: Mapped[int | None]
    most_devices: Mapped[int | None]
    created_at: Mapped[float]


class ApiKey(Base):
    """What a client shows to be let in; of the key itself only a hash is kept, and a prefix to know it by."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"), index=True)
    name: Mapped[str] = mapped_column(Name)
    prefix: Mapped[str] = mapped_column(Word)
    hash: Mapped[str] = mapped_column(String(64), unique=True)
    scopes: Mapped[list[str]] = mapped_column(JsonValue)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Name, default="")
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]


class Secret(Base):
    """A value that trainers of a project (or of one job) get in their environment; encrypted."""

    __tablename__ = "secrets"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"))
    job_id: Mapped[str | None] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(Name)
    ciphertext: Mapped[str] = mapped_column(Text)
    created_at: Mapped[float]
    updated_at: Mapped[float]

    __table_args__ = (Index(None, "project", "name"),)


class Pipeline(Base):
    """Jobs that were posted together, each of which may use the results of those before it."""

    __tablename__ = "pipelines"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"))
    name: Mapped[str | None] = mapped_column(Name)
    created_by: Mapped[str] = mapped_column(Name, default="")
    created_at: Mapped[float]

    __table_args__ = (Index(None, "project", "created_at", "id"),)


class JobInput(Base):
    """A job or a data set that a job's config refers to. A job waits until the jobs it uses have succeeded,
    and neither can be deleted while a job that is not finished needs it.
    """

    __tablename__ = "job_inputs"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    argument: Mapped[str] = mapped_column(Name, primary_key=True)
    uses_job: Mapped[str | None] = mapped_column(Id, index=True)
    checkpoint: Mapped[str | None] = mapped_column(Name)
    uses_dataset: Mapped[str | None] = mapped_column(Id, index=True)


class Dataset(Base):
    """JSON lines that were uploaded, checked and counted; immutable. `key`: where the artifacts have them."""

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"))
    name: Mapped[str | None] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(Word)
    sha256: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(Text)
    bytes: Mapped[int] = mapped_column(BigInteger)
    splits: Mapped[dict[str, Any]]
    statistics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[float]
    created_by: Mapped[str] = mapped_column(Name, default="")

    __table_args__ = (UniqueConstraint("project", "sha256"), Index(None, "project", "created_at", "id"))


class Webhook(Base):
    """Where a job's changes of status are announced, and which of them. The secret signs; encrypted.

    `disabled_at`: since then the receiver wants nothing more.
    """

    __tablename__ = "webhooks"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    url: Mapped[str] = mapped_column(Text)
    secret: Mapped[str] = mapped_column(Text)
    events: Mapped[list[str]] = mapped_column(JsonValue)
    disabled_at: Mapped[float | None]


class WebhookDelivery(Base):
    """One announcement: written in the transaction of the change, sent later, and again until it arrives."""

    __tablename__ = "webhook_deliveries"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    job_id: Mapped[str] = mapped_column(Id, ForeignKey("webhooks.job_id", ondelete="CASCADE"))
    event_id: Mapped[int] = mapped_column(BigInteger)
    type: Mapped[str] = mapped_column(Word)
    payload: Mapped[str] = mapped_column(Text)
    status: Mapped[str] = mapped_column(Word)
    attempts: Mapped[int] = mapped_column(default=0)
    due_at: Mapped[float]
    created_at: Mapped[float]
    tried_at: Mapped[float | None]
    delivered_at: Mapped[float | None]
    answer_code: Mapped[int | None]
    error: Mapped[str] = mapped_column(Text, default="")

    __table_args__ = (Index(None, "status", "due_at"), Index(None, "job_id", "event_id"))


class Job(Base):
    """What was asked for, and where it stands. `attempt` is the fencing number of everything that writes;
    what attempts before `fresh_attempt` have saved is not gone on from.

    `retries` counts what `max_retries` bounds, `infrastructure_faults` what is at no charge; `setbacks` both.
    A new checkpoint sets the last two to 0.
    """

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, ForeignKey("projects.name"))
    submitted_by: Mapped[str] = mapped_column(Name, default="")
    pipeline_id: Mapped[str | None] = mapped_column(Id, ForeignKey("pipelines.id"), index=True)
    pipeline_step: Mapped[str | None] = mapped_column(Name)
    name: Mapped[str | None] = mapped_column(Name)
    task: Mapped[str] = mapped_column(Word)
    status: Mapped[str] = mapped_column(Word)
    reason: Mapped[str] = mapped_column(Word)
    message: Mapped[str] = mapped_column(Text, default="")
    attempt: Mapped[int] = mapped_column(default=1)
    priority: Mapped[int] = mapped_column(default=0)
    nodes: Mapped[int] = mapped_column(default=1)
    devices_per_node: Mapped[int] = mapped_column(default=1)
    device: Mapped[str] = mapped_column(Word, default="cpu")
    max_retries: Mapped[int] = mapped_column(default=0)
    retries: Mapped[int] = mapped_column(default=0)
    infrastructure_faults: Mapped[int] = mapped_column(default=0)
    setbacks: Mapped[int] = mapped_column(default=0)
    fresh_attempt: Mapped[int] = mapped_column(default=1)
    timeout_s: Mapped[float | None]
    not_before: Mapped[float | None]
    evidence: Mapped[dict[str, Any] | None] = mapped_column(JsonValue)
    estimate: Mapped[dict[str, Any] | None] = mapped_column(JsonValue)
    config_given: Mapped[dict[str, Any]]
    config_resolved: Mapped[dict[str, Any]]
    warnings: Mapped[list[dict[str, Any]]] = mapped_column(default=list)
    progress: Mapped[dict[str, Any]] = mapped_column(default=dict)
    placement: Mapped[list[dict[str, Any]] | None] = mapped_column(JsonValue)
    created_at: Mapped[float]
    updated_at: Mapped[float]
    queued_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]

    label_rows: Mapped[list["JobLabel"]] = relationship(
        lazy="selectin", cascade="all, delete-orphan", passive_deletes=True, order_by="JobLabel.key"
    )

    webhook: Mapped["Webhook | None"] = relationship(
        lazy="selectin", cascade="all, delete-orphan", passive_deletes=True
    )

    __table_args__ = (
        Index(None, "created_at", "id"),
        Index(None, "status", "created_at", "id"),
        Index(None, "project", "created_at", "id"),
        Index(None, "project", "status", "created_at", "id"),
        Index(None, "task", "created_at", "id"),
        Index(None, "name", "created_at", "id"),
        Index("ix_jobs_queue", "status", priority.desc(), "created_at", "id", "device"),
    )

    @property
    def labels(self) -> dict[str, str]:
        return {row.key: row.value for row in self.label_rows}


class JobLabel(Base):
    """One key and value that the user has put on a job."""

    __tablename__ = "job_labels"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    key: Mapped[str] = mapped_column(Name, primary_key=True)
    value: Mapped[str] = mapped_column(Name)

    __table_args__ = (Index(None, "key", "value", "job_id"),)


class IdempotencyKey(Base):
    """Which job a client's Idempotency-Key has made; lives as long as the job. Each project has its own."""

    __tablename__ = "idempotency_keys"

    project: Mapped[str] = mapped_column(Name, primary_key=True)
    key: Mapped[str] = mapped_column(Name, primary_key=True)
    body_hash: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(
        Id, ForeignKey("jobs.id", ondelete="CASCADE", deferrable=True, initially="DEFERRED"), index=True
    )
    created_at: Mapped[float]


class Attempt(Base):
    """One try to run a job on a gang of hosts; live while `ended_at` is empty."""

    __tablename__ = "attempts"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    placed_at: Mapped[float]
    started_at: Mapped[float | None]
    ended_at: Mapped[float | None]
    reason: Mapped[str | None] = mapped_column(Word)
    message: Mapped[str] = mapped_column(Text, default="")
    exit_code: Mapped[int | None]
    finished_by: Mapped[str | None] = mapped_column(Name)
    events_offset: Mapped[int] = mapped_column(BigInteger, default=0)
    preempted_for: Mapped[str | None] = mapped_column(Id)
    preempted_at: Mapped[float | None]

    __table_args__ = (
        Index(
            "uq_attempts_live",
            "job_id",
            unique=True,
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )


class AttemptNode(Base):
    """One host's part of an attempt: its devices and its lease. The devices are taken until `ended_at`."""

    __tablename__ = "attempt_nodes"

    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(Name)
    devices: Mapped[list[int]] = mapped_column(JsonValue)
    owner: Mapped[str | None] = mapped_column(Name)
    claimed_at: Mapped[float | None]
    lease_until: Mapped[float | None]
    ended_at: Mapped[float | None]

    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
        UniqueConstraint("job_id", "attempt", "host"),
        Index(
            "ix_attempt_nodes_open",
            "host",
            sqlite_where=text("ended_at IS NULL"),
            postgresql_where=text("ended_at IS NULL"),
        ),
    )


class Gang(Base):
    """What the hosts of an attempt on several hosts agree on.

    `start`: from which checkpoint they go on, once that is decided. `address`: where their trainers meet.
    `log_lines`: so many lines of the attempt's log have a number.
    """

    __tablename__ = "gangs"

    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    start: Mapped[dict[str, Any] | None] = mapped_column(JsonValue)
    address: Mapped[str | None] = mapped_column(Name)
    log_lines: Mapped[int] = mapped_column(BigInteger, default=0)

    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "attempt"], ["attempts.job_id", "attempts.number"], ondelete="CASCADE"
        ),
    )


class GangHost(Base):
    """How far one host of a gang is.

    `stage`: of its preparations. `events_offset`: bytes of its own event file that were reported.
    `log_block`: the last of its lines that were given numbers. `ending`: what it reported at its end.
    """

    __tablename__ = "gang_hosts"

    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    stage: Mapped[int] = mapped_column(default=0)
    events_offset: Mapped[int] = mapped_column(BigInteger, default=0)
    log_block: Mapped[dict[str, Any] | None] = mapped_column(JsonValue)
    ending: Mapped[dict[str, Any] | None] = mapped_column(JsonValue)

    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "attempt", "rank"],
            ["attempt_nodes.job_id", "attempt_nodes.attempt", "attempt_nodes.rank"],
            ondelete="CASCADE",
        ),
    )


class CheckpointPart(Base):
    """The files of a checkpoint that one host of a gang has uploaded; gone once all hosts have."""

    __tablename__ = "checkpoint_parts"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    files: Mapped[list[dict[str, Any]]]


class OutboxMessage(Base):
    """A host that still has to be told of its part of an attempt; gone once the host has claimed it."""

    __tablename__ = "outbox"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    queue: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(Id)
    attempt: Mapped[int]
    rank: Mapped[int]
    created_at: Mapped[float]
    due_at: Mapped[float] = mapped_column(index=True)
    first_published_at: Mapped[float | None] = mapped_column(index=True)

    __table_args__ = (
        ForeignKeyConstraint(
            ["job_id", "attempt", "rank"],
            ["attempt_nodes.job_id", "attempt_nodes.attempt", "attempt_nodes.rank"],
            ondelete="CASCADE",
        ),
        UniqueConstraint("job_id", "attempt", "rank"),
        {"sqlite_autoincrement": True},
    )


class JobEvent(Base):
    """What was done, by whom, to which job. Ids grow in commit order within a job, so a reader's last id is
    its cursor. An event outlives its job, and `job_id` is empty for what concerns none (keys, hosts).
    """

    __tablename__ = "job_events"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    project: Mapped[str | None] = mapped_column(Name)
    job_id: Mapped[str | None] = mapped_column(Id)
    actor: Mapped[str] = mapped_column(Name, default="")
    time: Mapped[float]
    type: Mapped[str] = mapped_column(Word)
    attempt: Mapped[int]
    from_status: Mapped[str | None] = mapped_column(Word)
    to_status: Mapped[str | None] = mapped_column(Word)
    reason: Mapped[str | None] = mapped_column(Word)
    message: Mapped[str] = mapped_column(Text, default="")
    data: Mapped[dict[str, Any]] = mapped_column(default=dict)

    __table_args__ = (
        Index(None, "job_id", "id"),
        Index(None, "project", "id"),
        {"sqlite_autoincrement": True},
    )


class Metric(Base):
    """The numbers of one step: one row per job, kind and step, a later attempt's replaces an older one."""

    __tablename__ = "metrics"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"))
    attempt: Mapped[int]
    kind: Mapped[str] = mapped_column(Word)
    step: Mapped[int] = mapped_column(BigInteger)
    time: Mapped[float]
    values: Mapped[dict[str, Any]]

    __table_args__ = (
        UniqueConstraint("job_id", "kind", "step"),
        Index(None, "job_id", "id"),
        {"sqlite_autoincrement": True},
    )


class Checkpoint(Base):
    """Weights that were published as artifacts; the final model is the one that `is_result`."""

    __tablename__ = "checkpoints"

    job_id: Mapped[str] = mapped_column(Id, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(Name, primary_key=True)
    attempt: Mapped[int]
    step: Mapped[int | None] = mapped_column(BigInteger)
    is_result: Mapped[bool] = mapped_column(Boolean, default=False)
    best: Mapped[bool] = mapped_column(Boolean, default=False)
    metrics: Mapped[dict[str, Any]] = mapped_column(default=dict)
    key: Mapped[str] = mapped_column(Text)
    bytes: Mapped[int] = mapped_column(BigInteger)
    files: Mapped[list[dict[str, Any]]]
    created_at: Mapped[float]


class Tombstone(Base):
    """Artifacts whose owner was forgotten and that are still to be removed."""

    __tablename__ = "tombstones"

    key: Mapped[str] = mapped_column(Text, primary_key=True)
    created_at: Mapped[float]


class Host(Base):
    """A machine with devices. It gets jobs while it accepts them and its heartbeat is fresh.

    `failures`: attempts that have failed there in a way that may be the host's doing, the last ones.
    `exclusion_reason`: why it gets no jobs because of them, until `excluded_until` (None: until uncordoned).
    """

    __tablename__ = "hosts"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    device: Mapped[str] = mapped_column(Word)
    devices: Mapped[list[dict[str, Any]]]
    labels: Mapped[dict[str, Any]] = mapped_column(default=dict)
    info: Mapped[dict[str, Any]] = mapped_column(default=dict)
    accepts_jobs: Mapped[bool] = mapped_column(Boolean, default=True)
    cordoned: Mapped[bool] = mapped_column(Boolean, default=False)
    draining: Mapped[bool] = mapped_column(Boolean, default=False)
    cordon_reason: Mapped[str] = mapped_column(Text, default="")
    exclusion_reason: Mapped[str] = mapped_column(Text, default="")
    excluded_until: Mapped[float | None]
    failures: Mapped[list[dict[str, Any]]] = mapped_column(default=list)
    registered_at: Mapped[float]
    heartbeat_at: Mapped[float]


class Lease(Base):
    """A role that one process at a time may hold, for example that of the scheduler."""

    __tablename__ = "leases"

    name: Mapped[str] = mapped_column(Name, primary_key=True)
    owner: Mapped[str] = mapped_column(Name)
    lease_until: Mapped[float]
