"""What the limits of projects allow: how many jobs may wait, and how many may run on how many devices."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from store.errors import QuotaExceeded
from store.projects import lock_project
from store.states import Status
from store.tables import AttemptNode, Base, Job, Project

_PROJECTS = Base.metadata.tables["projects"]
_MOST_QUEUED = select(_PROJECTS.c.most_queued).where(_PROJECTS.c.name == bindparam("project"))


@dataclass(frozen=True)
class Quota:
    """The limits of a project (None: none) and what it uses of them now."""

    most_running: int | None = None
    most_devices: int | None = None
    running: int = 0
    devices: int = 0


def require_room(session: Session, project: str) -> None:
    """Hold the project until the transaction ends, and refuse a further job when too many wait already.

    Whoever adds a job to the queue asks here first, in the same transaction: two who come at once take turns.
    Raises: QuotaExceeded.
    """
    if session.execute(_MOST_QUEUED, {"project": project}).scalar_one_or_none() is None:
        return
    most = lock_project(session, project).most_queued
    count = select(func.count(Job.id)).where(Job.project == project, Job.status == Status.queued)
    waiting = session.execute(count).scalar_one()
    if most is not None and waiting >= most:
        raise QuotaExceeded(
            f"project {project} has {waiting} of at most {most} jobs in the queue: "
            "wait until some have started, cancel some, or let an administrator raise most_queued"
        )


def quotas(session: Session) -> Mapping[str, Quota]:
    """The quota of every project that has one for running jobs or devices."""
    limited = select(Project).where(Project.most_running.is_not(None) | Project.most_devices.is_not(None))
    found = {project.name: project for project in session.execute(limited).scalars()}
    if not found:
        return {}
    use = _use(session, found)
    return {
        name: Quota(project.most_running, project.most_devices, *use.get(name, (0, 0)))
        for name, project in found.items()
    }


def may_start(session: Session, job: Job) -> bool:
    """Whether the job's project may run it besides what it runs now. Holds the project until the transaction
    ends, so that two schedulers cannot both fill its last place.
    """
    project = lock_project(session, job.project)
    running, devices = _use(session, [job.project]).get(job.project, (0, 0))
    wanted = job.nodes * job.devices_per_node
    return not (
        (project.most_running is not None and running + 1 > project.most_running)
        or (project.most_devices is not None and devices + wanted > project.most_devices)
    )


def _use(session: Session, projects: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Jobs that hold devices, and the devices that they hold, by project."""
    query = (
        select(Job.project, AttemptNode.job_id, AttemptNode.devices)
        .join(AttemptNode, AttemptNode.job_id == Job.id)
        .where(AttemptNode.ended_at.is_(None), Job.project.in_(list(projects)))
    )
    jobs: dict[str, set[str]] = {}
    devices: dict[str, int] = {}
    for project, job_id, held in session.execute(query):
        jobs.setdefault(project, set()).add(job_id)
        devices[project] = devices.get(project, 0) + len(held)
    return {project: (len(ids), devices[project]) for project, ids in jobs.items()}
