"""Removes what is left of what was deleted: workspaces on this host, and artifacts."""

import logging
import shutil
import threading
import time
from pathlib import Path
from uuid import UUID

from store.artifacts import artifacts_for
from store.database import Database
from store.jobs import existing_ids
from store.settings import Settings
from store.tombstones import sweep
from worker.strays import live_runners

SWEEP_EVERY_S = 60.0

log = logging.getLogger(__name__)


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


class ArtifactSweeper(threading.Thread):
    """Removes artifacts that could not be removed when their owner was forgotten."""

    def __init__(self, settings: Settings, database: Database) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._database = database
        self._artifacts = artifacts_for(settings.artifacts_url)

    def run(self) -> None:
        while True:
            try:
                if removed := sweep(self._database, self._artifacts):
                    log.info("removed what was left of %d deleted jobs or data sets", removed)
            except Exception as error:
                log.warning("artifacts of what was deleted cannot be removed: %s", error)
            time.sleep(SWEEP_EVERY_S)


def _is_job_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
