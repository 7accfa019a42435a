"""Projects: whose things are kept apart from all others', and how much each may use."""

from collections.abc import Collection, Mapping

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from store.audit import add_action
from store.clock import database_now
from store.errors import Conflict, NotFound
from store.tables import Job, Project

LIMITS = ("most_queued", "most_running", "most_devices")


def create_project(
    session: Session, name: str, limits: Mapping[str, int | None] | None = None, *, actor: str = ""
) -> Project:
    """A new project. Limits that are not given or None are none. Raises: Conflict when the name is taken."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = insert(Project).values(name=name, created_at=database_now(session), **dict(limits or {}))
    if session.execute(row.on_conflict_do_nothing().returning(Project.name)).first() is None:
        raise Conflict(f"there is a project {name!r} already")
    add_action(session, "project_created", f"project {name}", project=name, actor=actor, data=limits)
    return get_project(session, name)


def get_project(session: Session, name: str) -> Project:
    """The project as it is now. Raises: NotFound."""
    project = session.get(Project, name, populate_existing=True)
    if project is None:
        raise NotFound(f"there is no project {name!r}")
    return project


def list_projects(session: Session) -> list[Project]:
    """All projects by name."""
    return list(session.execute(select(Project).order_by(Project.name)).scalars())


def set_limits(session: Session, name: str, limits: Mapping[str, int | None], *, actor: str = "") -> Project:
    """Change those limits that are given; None lifts one. What is queued or runs already goes on.

    Raises: NotFound.
    """
    project = lock_project(session, name)
    for limit, value in limits.items():
        if limit not in LIMITS:
            raise ValueError(f"limit: got {limit!r}, expected one of {', '.join(LIMITS)}")
        setattr(project, limit, value)
    session.flush()
    add_action(session, "project_limits", f"limits of project {name}", project=name, actor=actor, data=limits)
    return project


def jobs_of(session: Session, job_ids: Collection[str], project: str | None) -> set[str]:
    """Those of the jobs that belong to the project; all of them for None."""
    if project is None:
        return set(job_ids)
    query = select(Job.id).where(Job.id.in_(job_ids), Job.project == project)
    return set(session.execute(query).scalars())


def lock_project(session: Session, name: str) -> Project:
    """The project, held until the transaction ends. Raises: NotFound."""
    # not the strongest lock: rows that refer to the project may be written meanwhile
    query = select(Project).where(Project.name == name).with_for_update(key_share=True)
    project = session.execute(query, execution_options={"populate_existing": True}).scalar_one_or_none()
    if project is None:
        raise NotFound(f"there is no project {name!r}")
    return project
