"""What was done that concerns no single job: keys, projects, secrets, hosts."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from store.clock import database_now
from store.tables import JobEvent


def add_action(
    session: Session,
    kind: str,
    message: str,
    *,
    project: str | None,
    actor: str,
    data: Mapping[str, Any] | None = None,
) -> JobEvent:
    """Write down who has done what.

    Args:
        kind: for example "key_revoked".
        project: whose it is; None when it concerns the whole service.
        data: what else is worth knowing (JSON); never a secret.
    """
    event = JobEvent(
        project=project,
        actor=actor,
        time=database_now(session),
        type=kind,
        attempt=0,
        message=message,
        data=dict(data or {}),
    )
    session.add(event)
    session.flush()
    return event
