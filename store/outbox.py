"""Telling hosts of what was placed on them. A message is repeated until its host has claimed."""

from collections.abc import Callable

from sqlalchemy import func, select, update

from store.clock import database_now
from store.database import Database
from store.tables import OutboxMessage

Send = Callable[[str, str, int], None]
"""Delivers (queue, job id, attempt) to the broker."""


def publish(database: Database, send: Send, *, republish_s: float, limit: int = 100) -> int:
    """Send the messages that are due and return their number.

    No transaction is open while `send` talks to the broker. What it raises is raised again, after what went
    out was noted; a crash in between sends twice, which a claim survives.
    """
    with database.reading() as session:
        query = select(OutboxMessage).where(OutboxMessage.due_at <= database_now(session))
        due = list(session.execute(query.order_by(OutboxMessage.id).limit(limit)).scalars())
    sent: list[int] = []
    try:
        for message in due:
            send(message.queue, message.job_id, message.attempt)
            sent.append(message.id)
    finally:
        if sent:
            _note_sent(database, sent, republish_s)
    return len(sent)


def _note_sent(database: Database, ids: list[int], republish_s: float) -> None:
    with database.transaction() as session:
        now = database_now(session)
        session.execute(
            update(OutboxMessage)
            .where(OutboxMessage.id.in_(ids))
            .values(
                due_at=now + republish_s,
                first_published_at=func.coalesce(OutboxMessage.first_published_at, now),
            )
        )
