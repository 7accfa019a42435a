"""How Alembic runs the migrations: on a given connection (store.migrate), or on the settings' database."""

from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

from store.database import create_database_engine, normalised_url
from store.settings import get_settings
from store.tables import Base, PlainText


def render_item(kind: str, item: Any, _context: object) -> str | Literal[False]:
    """Write `sa.String` for `PlainText`: migrations do not depend on today's tables."""
    if kind == "type" and isinstance(item, PlainText):
        return f"sa.String({item.length or ''})"
    return False


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
        compare_type=True,
        compare_server_default=True,
        render_item=render_item,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    engine = create_database_engine(
        normalised_url(get_settings().database_url), foreign_keys=False, pooled=False
    )
    with engine.begin() as connection:
        run(connection)
