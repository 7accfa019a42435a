"""The database's clock: the only one that leases are compared with."""

from sqlalchemy import text
from sqlalchemy.orm import Session

_NOW = {
    "postgresql": text("SELECT extract(epoch FROM clock_timestamp())::double precision"),
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
}


def database_now(session: Session) -> float:
    """Unix seconds by the clock of the database server."""
    return float(session.execute(_NOW[session.get_bind().dialect.name]).scalar_one())
