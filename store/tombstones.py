"""Artifacts that belong to nothing any more: named in the transaction that forgets their owner, then removed.

So no row is forgotten while its files stay, and no file goes while its row stays, whatever is away or dies.
"""

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from store.artifacts import Artifacts
from store.clock import database_now
from store.database import Database
from store.tables import Tombstone


def bury(session: Session, key: str) -> None:
    """Have everything below `key` removed once the transaction is committed. Keys are never used again."""
    session.merge(Tombstone(key=key, created_at=database_now(session)))


def sweep(database: Database, artifacts: Artifacts, *keys: str, limit: int = 100) -> int:
    """Remove what was buried (only `keys`, where some are given), oldest first; how much was.

    Several may sweep at once.

    Raises: OSError, ArtifactError: the artifacts cannot be removed now; what is left stays buried.
    """
    with database.reading() as session:
        query = select(Tombstone.key).order_by(Tombstone.created_at).limit(limit)
        if keys:
            query = query.where(Tombstone.key.in_(keys))
        buried = list(session.execute(query).scalars())
    for key in buried:
        artifacts.delete_prefix(key)
        with database.transaction() as session:
            session.execute(delete(Tombstone).where(Tombstone.key == key))
    return len(buried)
