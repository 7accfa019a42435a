"""Attempts on several hosts: what the hosts agree on, how far each is, and their parts of checkpoints."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "gangs",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("start", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("address", sa.String(255), nullable=True),
        sa.Column("log_lines", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt"],
            ["attempts.job_id", "attempts.number"],
            name=op.f("fk_gangs_job_id_attempt_attempts"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", name=op.f("pk_gangs")),
    )
    op.create_table(
        "gang_hosts",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Integer(), nullable=False),
        sa.Column("events_offset", sa.BigInteger(), nullable=False),
        sa.Column("log_block", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("ending", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["job_id", "attempt", "rank"],
            ["attempt_nodes.job_id", "attempt_nodes.attempt", "attempt_nodes.rank"],
            name=op.f("fk_gang_hosts_job_id_attempt_rank_attempt_nodes"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "rank", name=op.f("pk_gang_hosts")),
    )
    op.create_table(
        "checkpoint_parts",
        sa.Column("job_id", sa.String(36), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("files", sa.JSON(none_as_null=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_checkpoint_parts_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt", "name", "rank", name=op.f("pk_checkpoint_parts")),
    )


def downgrade() -> None:
    op.drop_table("checkpoint_parts")
    op.drop_table("gang_hosts")
    op.drop_table("gangs")
