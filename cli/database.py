"""Bring the database up to date, with failures that an operator can read."""

from sqlalchemy.exc import SQLAlchemyError

from cli.errors import CliError
from store.database import Database
from store.errors import StoreError
from store.migrate import SchemaError, check, upgrade


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


def check_database(url: str) -> None:
    """Refuse to start on a database that has other tables than this version needs.

    A database that does not answer is waited for later, by whatever is started.

    Raises:
        CliError: the tables are not there, or are another version's.
    """
    database = Database(url)
    try:
        check(database)
    except SchemaError as error:
        raise CliError(f"This cannot be started yet: {error}.") from error
    except SQLAlchemyError:
        return
    finally:
        database.dispose()
