"""Jobs as the API shows them, with what the database says beside their rows."""

from sqlalchemy.orm import Session

from api.schemas.jobs import Job
from api.service import Service
from store import tables
from store.queue import places


def shown(session: Session, row: tables.Job, webhook_secret: str | None = None) -> Job:
    """A job with its place in the queue."""
    return Job.of(row, places(session, [row]).get(row.id), webhook_secret)


def show_now(service: Service, row: tables.Job, webhook_secret: str | None = None) -> Job:
    """The same in a session of its own."""
    with service.database.reading() as session:
        return shown(session, row, webhook_secret)
