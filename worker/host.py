"""Makes this host known to the service, and keeps it known."""

import logging
import os
import platform
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from store.database import Database
from store.exclusion import note_memory_errors
from store.hosts import heartbeat_host, register_host, set_accepts_jobs
from store.settings import Settings
from store.wake import SCHEDULER, wake
from worker import nvml
from worker.cleaning import remove_forgotten_workspaces
from worker.devices import device_kind, host_devices

CLEAN_EVERY_S = 60.0
"""So soon the space of deleted jobs is free."""

log = logging.getLogger(__name__)


class HostPresence(threading.Thread):
    """Registers this host and beats for it until it is withdrawn; an absent database is waited for."""

    def __init__(self, settings: Settings, database: Database) -> None:
        """Look at the devices. Raises: DeviceError."""
        super().__init__(name="host", daemon=True)
        self._settings = settings
        self._database = database
        self._devices = host_devices(settings, os.environ)
        self._withdrawn = threading.Event()
        self._registered = False
        self._clean_at = 0.0

    @property
    def slots(self) -> int:
        """How many devices this host offers."""
        return len(self._devices)

    def run(self) -> None:
        while not self._withdrawn.is_set():
            try:
                self.report()
                self._clean()
            except Exception as error:
                log.warning("the host could not report itself: %s", error)
            self._withdrawn.wait(self._settings.heartbeat_s)

    def report(self) -> bool:
        """Register, or beat once that is done; False when the service has forgotten the host meanwhile."""
        self._registered = self._beat() if self._registered else self._register()
        return self._registered

    def withdraw(self) -> None:
        """Take no new jobs from now on; those that run here go on."""
        self._withdrawn.set()
        try:
            with self._database.transaction() as session:
                set_accepts_jobs(session, self._settings.host_name, False)
        except Exception as error:
            log.warning("the host could not be withdrawn: %s", error)

    def _register(self) -> bool:
        with self._database.transaction() as session:
            register_host(
                session,
                self._settings.host_name,
                device=device_kind(self._settings),
                devices=self._devices,
                info=_info(),
            )
        log.info("host %s offers %s", self._settings.host_name, self._settings.devices)
        wake(self._settings.broker_url, SCHEDULER)
        return True

    def _clean(self) -> None:
        if time.monotonic() >= self._clean_at:
            self._clean_at = time.monotonic() + CLEAN_EVERY_S
            for job_id in remove_forgotten_workspaces(self._settings.work_dir, self._database):
                log.info("removed the workspace of job %s, which was deleted", job_id)

    def _beat(self) -> bool:
        errors = nvml.uncorrected_errors() if device_kind(self._settings) == "gpu" else {}
        with self._database.transaction() as session:
            known = heartbeat_host(session, self._settings.host_name)
            if known and errors:
                policy = self._settings.retry_policy.exclusion
                note_memory_errors(session, self._settings.host_name, errors, policy)
            return known


def _info() -> dict[str, Any]:
    return {
        "regatta": version("regatta"),
        "paddle": _version_of("paddlepaddle-gpu") or _version_of("paddlepaddle"),
        "driver": nvml.driver_version(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "worker_pid": os.getpid(),
    }


def _version_of(package: str) -> str | None:
    """The version of a package that is installed; None when it is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
