"""Named leases: roles that one process at a time may hold."""

from sqlalchemy import delete, or_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.clock import database_now
from store.tables import Lease

_LONGEST_TTLS = 10


def acquire_lease(session: Session, name: str, owner: str, *, ttl_s: float) -> bool:
    """Take or keep a role for `ttl_s` seconds; False while another owner's lease runs.

    A lease that would run for very much longer is from before the database's clock was set back: it is over.
    """
    now = database_now(session)
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    wanted = insert(Lease).values(name=name, owner=owner, lease_until=now + ttl_s)
    taken = wanted.on_conflict_do_update(
        index_elements=[Lease.name],
        set_={"owner": owner, "lease_until": now + ttl_s},
        where=or_(
            Lease.owner == owner, Lease.lease_until < now, Lease.lease_until > now + _LONGEST_TTLS * ttl_s
        ),
    ).returning(Lease.name)
    return session.execute(taken).scalar_one_or_none() is not None


def release_lease(session: Session, name: str, owner: str) -> None:
    """Give a role back before its time is over."""
    session.execute(delete(Lease).where(Lease.name == name, Lease.owner == owner))
