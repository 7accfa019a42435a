"""Projects with keys, secrets, data sets and pipelines; what jobs use; announcements to webhooks."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

DEFAULT = "default"
"""The project of all that was there before."""


def upgrade() -> None:
    op.create_table(
        "projects",
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("most_queued", sa.Integer(), nullable=True),
        sa.Column("most_running", sa.Integer(), nullable=True),
        sa.Column("most_devices", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_projects")),
    )
    projects = sa.table("projects", sa.column("name"), sa.column("created_at"))
    op.execute(projects.insert().values(name=DEFAULT, created_at=0))
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("prefix", sa.String(32), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("last_used_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name=op.f("fk_api_keys_project_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_keys_hash")),
    )
    with op.batch_alter_table("api_keys") as batch_op:
        batch_op.create_index(batch_op.f("ix_api_keys_project"), ["project"], unique=False)

    op.create_table(
        "datasets",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("splits", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("statistics", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name=op.f("fk_datasets_project_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
        sa.UniqueConstraint("project", "sha256", name=op.f("uq_datasets_project_sha256")),
    )
    with op.batch_alter_table("datasets") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_datasets_project_created_at_id"), ["project", "created_at", "id"], unique=False
        )

    op.create_table(
        "pipelines",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("name", sa.String(255), nullable=True),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name=op.f("fk_pipelines_project_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipelines")),
    )
    with op.batch_alter_table("pipelines") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_pipelines_project_created_at_id"), ["project", "created_at", "id"], unique=False
        )

    op.create_table(
        "job_inputs",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("argument", sa.String(255), nullable=False),
        sa.Column("uses_job", sa.String(36), nullable=True),
        sa.Column("checkpoint", sa.String(255), nullable=True),
        sa.Column("uses_dataset", sa.String(36), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_job_inputs_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "argument", name=op.f("pk_job_inputs")),
    )
    with op.batch_alter_table("job_inputs") as batch_op:
        batch_op.create_index(batch_op.f("ix_job_inputs_uses_dataset"), ["uses_dataset"], unique=False)
        batch_op.create_index(batch_op.f("ix_job_inputs_uses_job"), ["uses_job"], unique=False)

    op.create_table(
        "secrets",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("project", sa.String(255), nullable=False),
        sa.Column("job_id", sa.String(36), nullable=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("ciphertext", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("updated_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_secrets_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["project"], ["projects.name"], name=op.f("fk_secrets_project_projects")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_secrets")),
    )
    with op.batch_alter_table("secrets") as batch_op:
        batch_op.create_index(batch_op.f("ix_secrets_job_id"), ["job_id"], unique=False)
        batch_op.create_index(batch_op.f("ix_secrets_project_name"), ["project", "name"], unique=False)

    op.create_table(
        "webhooks",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("url", sa.String(), nullable=False),
        sa.Column("secret", sa.String(), nullable=False),
        sa.Column("events", sa.JSON(none_as_null=True), nullable=False),
        sa.Column("disabled_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_webhooks_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_webhooks")),
    )
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.String(36), nullable=False),
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("event_id", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("payload", sa.String(), nullable=False),
        sa.Column("status", sa.String(32), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Double(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("tried_at", sa.Double(), nullable=True),
        sa.Column("delivered_at", sa.Double(), nullable=True),
        sa.Column("answer_code", sa.Integer(), nullable=True),
        sa.Column("error", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["webhooks.job_id"],
            name=op.f("fk_webhook_deliveries_job_id_webhooks"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_webhook_deliveries")),
    )
    with op.batch_alter_table("webhook_deliveries") as batch_op:
        batch_op.create_index(
            batch_op.f("ix_webhook_deliveries_job_id_event_id"), ["job_id", "event_id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_webhook_deliveries_status_due_at"), ["status", "due_at"], unique=False
        )

    _add("hosts", sa.Column("cordoned", sa.Boolean(), nullable=False), sa.false())
    _add("hosts", sa.Column("draining", sa.Boolean(), nullable=False), sa.false())
    _add("hosts", sa.Column("cordon_reason", sa.String(), nullable=False), "")

    _add("idempotency_keys", sa.Column("project", sa.String(255), nullable=False), DEFAULT)
    with op.batch_alter_table("idempotency_keys") as batch_op:
        batch_op.drop_constraint(op.f("pk_idempotency_keys"), type_="primary")
        batch_op.create_primary_key(op.f("pk_idempotency_keys"), ["project", "key"])

    _add("job_events", sa.Column("actor", sa.String(255), nullable=False), "")
    with op.batch_alter_table("job_events") as batch_op:
        batch_op.add_column(sa.Column("project", sa.String(255), nullable=True))
        batch_op.alter_column("job_id", existing_type=sa.VARCHAR(length=36), nullable=True)
        batch_op.create_index(batch_op.f("ix_job_events_project_id"), ["project", "id"], unique=False)
        batch_op.drop_constraint(batch_op.f("fk_job_events_job_id_jobs"), type_="foreignkey")

    op.execute(sa.text("UPDATE job_events SET project = :name").bindparams(name=DEFAULT))
    _add("jobs", sa.Column("project", sa.String(255), nullable=False), DEFAULT)
    _add("jobs", sa.Column("submitted_by", sa.String(255), nullable=False), "")
    _add("jobs", sa.Column("setbacks", sa.Integer(), nullable=False), "0")
    _add("jobs", sa.Column("fresh_attempt", sa.Integer(), nullable=False), "1")
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.add_column(sa.Column("pipeline_id", sa.String(36), nullable=True))
        batch_op.add_column(sa.Column("pipeline_step", sa.String(255), nullable=True))
        batch_op.alter_column(
            "lost_leases",
            new_column_name="infrastructure_faults",
            existing_type=sa.Integer(),
            existing_nullable=False,
        )
        batch_op.add_column(sa.Column("not_before", sa.Double(), nullable=True))
        batch_op.add_column(sa.Column("evidence", sa.JSON(none_as_null=True), nullable=True))
        batch_op.add_column(sa.Column("estimate", sa.JSON(none_as_null=True), nullable=True))
        batch_op.create_index(batch_op.f("ix_jobs_pipeline_id"), ["pipeline_id"], unique=False)
        batch_op.create_index(
            batch_op.f("ix_jobs_project_created_at_id"), ["project", "created_at", "id"], unique=False
        )
        batch_op.create_index(
            batch_op.f("ix_jobs_project_status_created_at_id"),
            ["project", "status", "created_at", "id"],
            unique=False,
        )
        batch_op.create_foreign_key(batch_op.f("fk_jobs_project_projects"), "projects", ["project"], ["name"])
        batch_op.create_foreign_key(
            batch_op.f("fk_jobs_pipeline_id_pipelines"), "pipelines", ["pipeline_id"], ["id"]
        )
    order = ["status", sa.text("priority DESC"), "created_at", "id", "device"]
    op.create_index("ix_jobs_queue", "jobs", order)
    op.create_table(
        "tombstones",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_tombstones")),
    )


def _add(table: str, column: sa.Column, value: str | sa.ColumnElement[bool]) -> None:
    """Add a column that may not be empty; rows that are there get `value`."""
    column.server_default = sa.DefaultClause(sa.text(f"'{value}'") if isinstance(value, str) else value)
    with op.batch_alter_table(table) as batch:
        batch.add_column(column)
    with op.batch_alter_table(table) as batch:
        batch.alter_column(column.name, existing_type=column.type, server_default=None)


def downgrade() -> None:
    op.drop_table("tombstones")
    op.drop_index("ix_jobs_queue", "jobs")
    with op.batch_alter_table("jobs") as batch_op:
        batch_op.drop_constraint(batch_op.f("fk_jobs_pipeline_id_pipelines"), type_="foreignkey")
        batch_op.drop_constraint(batch_op.f("fk_jobs_project_projects"), type_="foreignkey")
        batch_op.drop_index(batch_op.f("ix_jobs_project_status_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_project_created_at_id"))
        batch_op.drop_index(batch_op.f("ix_jobs_pipeline_id"))
        batch_op.drop_column("estimate")
        batch_op.drop_column("evidence")
        batch_op.drop_column("not_before")
        batch_op.drop_column("setbacks")
        batch_op.alter_column(
            "infrastructure_faults",
            new_column_name="lost_leases",
            existing_type=sa.Integer(),
            existing_nullable=False,
        )
        batch_op.drop_column("pipeline_step")
        batch_op.drop_column("pipeline_id")
        batch_op.drop_column("fresh_attempt")
        batch_op.drop_column("submitted_by")
        batch_op.drop_column("project")

    op.execute("DELETE FROM job_events WHERE job_id IS NULL OR job_id NOT IN (SELECT id FROM jobs)")
    with op.batch_alter_table("job_events") as batch_op:
        batch_op.create_foreign_key(
            batch_op.f("fk_job_events_job_id_jobs"), "jobs", ["job_id"], ["id"], ondelete="CASCADE"
        )
        batch_op.drop_index(batch_op.f("ix_job_events_project_id"))
        batch_op.alter_column("job_id", existing_type=sa.VARCHAR(length=36), nullable=False)
        batch_op.drop_column("actor")
        batch_op.drop_column("project")

    with op.batch_alter_table("idempotency_keys") as batch_op:
        batch_op.drop_constraint(op.f("pk_idempotency_keys"), type_="primary")
        batch_op.create_primary_key(op.f("pk_idempotency_keys"), ["key"])
        batch_op.drop_column("project")

    with op.batch_alter_table("hosts") as batch_op:
        batch_op.drop_column("cordon_reason")
        batch_op.drop_column("draining")
        batch_op.drop_column("cordoned")

    with op.batch_alter_table("webhook_deliveries") as batch_op:
        batch_op.drop_index(batch_op.f("ix_webhook_deliveries_status_due_at"))
        batch_op.drop_index(batch_op.f("ix_webhook_deliveries_job_id_event_id"))

    op.drop_table("webhook_deliveries")
    op.drop_table("webhooks")
    with op.batch_alter_table("secrets") as batch_op:
        batch_op.drop_index(batch_op.f("ix_secrets_project_name"))
        batch_op.drop_index(batch_op.f("ix_secrets_job_id"))

    op.drop_table("secrets")
    with op.batch_alter_table("job_inputs") as batch_op:
        batch_op.drop_index(batch_op.f("ix_job_inputs_uses_job"))
        batch_op.drop_index(batch_op.f("ix_job_inputs_uses_dataset"))

    op.drop_table("job_inputs")
    with op.batch_alter_table("pipelines") as batch_op:
        batch_op.drop_index(batch_op.f("ix_pipelines_project_created_at_id"))

    op.drop_table("pipelines")
    with op.batch_alter_table("datasets") as batch_op:
        batch_op.drop_index(batch_op.f("ix_datasets_project_created_at_id"))

    op.drop_table("datasets")
    with op.batch_alter_table("api_keys") as batch_op:
        batch_op.drop_index(batch_op.f("ix_api_keys_project"))

    op.drop_table("api_keys")
    op.drop_table("projects")
