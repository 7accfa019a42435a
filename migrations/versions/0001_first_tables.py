"""Jobs, their attempts on hosts, and what they leave."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True)
ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "hosts",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("devices", JSON, nullable=False),
        sa.Column("labels", JSON, nullable=False),
        sa.Column("info", JSON, nullable=False),
        sa.Column("accepts_jobs", sa.Boolean(), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("heartbeat_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_hosts")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=True),
        sa.Column("task", sa.String(length=32), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("nodes", sa.Integer(), nullable=False),
        sa.Column("devices_per_node", sa.Integer(), nullable=False),
        sa.Column("device", sa.String(length=32), nullable=False),
        sa.Column("max_retries", sa.Integer(), nullable=False),
        sa.Column("retries", sa.Integer(), nullable=False),
        sa.Column("lost_leases", sa.Integer(), nullable=False),
        sa.Column("timeout_s", sa.Double(), nullable=True),
        sa.Column("config_given", JSON, nullable=False),
        sa.Column("config_resolved", JSON, nullable=False),
        sa.Column("warnings", JSON, nullable=False),
        sa.Column("progress", JSON, nullable=False),
        sa.Column("placement", JSON, nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("finished_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index(op.f("ix_jobs_created_at_id"), "jobs", ["created_at", "id"])
    op.create_index(op.f("ix_jobs_name_created_at_id"), "jobs", ["name", "created_at", "id"])
    op.create_index(op.f("ix_jobs_status_created_at_id"), "jobs", ["status", "created_at", "id"])
    op.create_index(op.f("ix_jobs_task_created_at_id"), "jobs", ["task", "created_at", "id"])
    op.create_table(
        "leases",
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=False),
        sa.Column("lease_until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
    )
    op.create_table(
        "attempts",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("placed_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("finished_by", sa.String(length=255), nullable=True),
        sa.Column("events_offset", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_attempts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_attempts")),
    )
    op.create_index(
        "uq_attempts_live",
        "attempts",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "checkpoints",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("is_result", sa.Boolean(), nullable=False),
        sa.Column("best", sa.Boolean(), nullable=False),
        sa.Column("metrics", JSON, nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("files", JSON, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_checkpoints_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "name", name=op.f("pk_checkpoints")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("body_hash", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["jobs.id"],
            name=op.f("fk_idempotency_keys_job_id_jobs"),
            ondelete="CASCADE",
            initially="DEFERRED",
            deferrable=True,
        ),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_job_id"), "idempotency_keys", ["job_id"])
    op.create_table(
        "job_events",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("type", sa.String(length=32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("from_status", sa.String(length=32), nullable=True),
        sa.Column("to_status", sa.String(length=32), nullable=True),
        sa.Column("reason", sa.String(length=32), nullable=True),
        sa.Column("message", sa.String(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_job_events_job_id_id"), "job_events", ["job_id", "id"])
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("value", sa.String(length=255), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_labels_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "key", name=op.f("pk_job_labels")),
    )
    op.create_index(op.f("ix_job_labels_key_value_job_id"), "job_labels", ["key", "value", "job_id"])
    op.create_table(
        "metrics",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("values", JSON, nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_metrics_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_metrics")),
        sa.UniqueConstraint("job_id", "kind", "step", name=op.f("uq_metrics_job_id_kind_step")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_metrics_job_id_id"), "metrics", ["job_id", "id"])
    op.create_table(
        "attempt_nodes",
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(length=255), nullable=False),
        sa.Column("devices", JSON, nullable=False),
        sa.Column("owner", sa.String(length=255), nullable=True),
        sa.Column("claimed_at", sa.Double(), nullable=True),
        sa.Column("lease_until", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt"],
            ["attempts.job_id", "attempts.number"],
            name=op.f("fk_attempt_nodes_job_id_attempt_attempts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "rank", name=op.f("pk_attempt_nodes")),
        sa.UniqueConstraint("job_id", "attempt", "host", name=op.f("uq_attempt_nodes_job_id_attempt_host")),
    )
    op.create_index(
        "ix_attempt_nodes_open",
        "attempt_nodes",
        ["host"],
        sqlite_where=sa.text("ended_at IS NULL"),
        postgresql_where=sa.text("ended_at IS NULL"),
    )
    op.create_table(
        "outbox",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("queue", sa.String(length=255), nullable=False),
        sa.Column("job_id", sa.String(length=36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("first_published_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt", "rank"],
            ["attempt_nodes.job_id", "attempt_nodes.attempt", "attempt_nodes.rank"],
            name=op.f("fk_outbox_job_id_attempt_rank_attempt_nodes"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_outbox")),
        sa.UniqueConstraint("job_id", "attempt", "rank", name=op.f("uq_outbox_job_id_attempt_rank")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_outbox_due_at"), "outbox", ["due_at"])
    op.create_index(op.f("ix_outbox_first_published_at"), "outbox", ["first_published_at"])


def downgrade() -> None:
    for table in (
        "outbox",
        "attempt_nodes",
        "metrics",
        "job_labels",
        "job_events",
        "idempotency_keys",
        "checkpoints",
        "attempts",
        "leases",
        "jobs",
        "hosts",
    ):
        op.drop_table(table)
