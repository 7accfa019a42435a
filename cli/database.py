"""Bring the database up to date, with failures that an operator can read."""

from sqlalchemy.exc import SQLAlchemyError

from cli.errors import CliError
from store.errors import StoreError
from store.migrate import upgrade


def migrate_database(url: str) -> None:
    """Create or change the tables of the database at `url`.

    Raises:
        CliError: it cannot be reached, or its tables are not ones that this version can change.
    """
    try:
        upgrade(url)
    except (SQLAlchemyError, StoreError) as error:
        reason = getattr(error, "orig", None) or error
        raise CliError(f"The database cannot be brought up to date: {reason}") from error
