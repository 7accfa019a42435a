"""Attempts that make room for more urgent jobs; hosts that jobs failed on."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("attempts") as batch_op:
        batch_op.add_column(sa.Column("preempted_for", sa.String(36), nullable=True))
        batch_op.add_column(sa.Column("preempted_at", sa.Double(), nullable=True))
    with op.batch_alter_table("hosts") as batch_op:
        batch_op.add_column(sa.Column("exclusion_reason", sa.String(), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("excluded_until", sa.Double(), nullable=True))
        batch_op.add_column(
            sa.Column("failures", sa.JSON(none_as_null=True), nullable=False, server_default="[]")
        )
    with op.batch_alter_table("hosts") as batch_op:
        batch_op.alter_column("exclusion_reason", server_default=None)
        batch_op.alter_column("failures", server_default=None)


def downgrade() -> None:
    with op.batch_alter_table("hosts") as batch_op:
        batch_op.drop_column("failures")
        batch_op.drop_column("excluded_until")
        batch_op.drop_column("exclusion_reason")
    with op.batch_alter_table("attempts") as batch_op:
        batch_op.drop_column("preempted_at")
        batch_op.drop_column("preempted_for")
