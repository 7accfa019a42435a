"""Removes the workspaces of jobs that were deleted."""

import shutil
from pathlib import Path
from uuid import UUID

from store.database import Database
from store.jobs import existing_ids
from worker.strays import live_runners


def remove_forgotten_workspaces(work_dir: Path, database: Database) -> list[str]:
    """Remove the workspaces of this host whose job was deleted; the ids of those jobs.

    A job is in the database before it gets a workspace, so a new one is never taken for a deleted one.
    """
    if not work_dir.is_dir():
        return []
    workspaces = {entry.name for entry in work_dir.iterdir() if entry.is_dir() and _is_job_id(entry.name)}
    with database.reading() as session:
        forgotten = workspaces - existing_ids(session, workspaces)
    if forgotten:
        forgotten -= {runner.job_id for runner in live_runners(work_dir)}
    for job_id in forgotten:
        shutil.rmtree(work_dir / job_id, ignore_errors=True)
    return sorted(forgotten)


def _is_job_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
