"""Starts the runner of an attempt that was placed on this host."""

import json
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import uuid_utils

from store.attempts import Claim, claim
from store.database import Database
from store.logformat import log_context
from store.reasons import Reason
from store.reports import Outcome, finish
from store.secretbox import NoSecretKey, Unreadable, open_box
from store.secrets import secrets_of_job
from store.settings import Settings
from store.states import Status
from store.wake import SCHEDULER, job_channel, wake
from trainer.config.preflight import Roots
from worker.aftermath import conclude
from worker.clock import boottime
from worker.devices import device_environment
from worker.inputs import MissingInput, input_keys, with_inputs
from worker.masking import Mask
from worker.runner import EXIT_LOST, EXIT_REPORTED
from worker.runners import Runners
from worker.services import Services
from worker.spec import ROOTS_VARIABLE, Spec
from worker.workspace import Workspace, write_atomically

LOOK_S = 0.1

log = logging.getLogger(__name__)


class Launcher:
    """Launches attempts on this host; `leave` is set when the worker shuts down."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        leave: threading.Event,
        runners: Runners | None = None,
    ) -> None:
        self._settings = settings
        self._runners = runners or Runners(settings)
        self._database = database
        self._leave = leave

    def launch(self, job_id: str, attempt: int) -> None:
        """Claim the attempt and see its runner through, or leave it alone when the worker shuts down.

        A message that is outdated, doubled or about a cancelled job finds nothing to claim: nothing happens.
        """
        with log_context(job_id=job_id, attempt=attempt):
            self._launch(job_id, attempt)

    def _launch(self, job_id: str, attempt: int) -> None:
        owner = f"{self._settings.host_name}/{uuid_utils.uuid7()}"
        renewed_at = boottime()  # before the request: the lease is at least this old
        with self._database.transaction() as session:
            claimed = claim(
                session, job_id, attempt, self._settings.host_name, owner, ttl_s=self._settings.lease_ttl_s
            )
        if claimed is None:
            log.info("job %s, attempt %d: nothing to claim here", job_id, attempt)
            return
        try:
            secrets = self._secrets(job_id)
            spec = prepare(self._settings, claimed, owner, renewed_at)
            runner = self._runners.start(spec, secrets)
        except (OSError, BadOutputDirectory, MissingInput, NoSecretKey, Unreadable) as error:
            self._report_failure(claimed, owner, error)
            return
        self._wait(runner, spec, Mask(secrets.values()))

    def _secrets(self, job_id: str) -> dict[str, str]:
        """What the trainer gets beside its config, by the names of variables.

        Raises: NoSecretKey or Unreadable where this host has not the key.
        """
        with self._database.reading() as session:
            stored = secrets_of_job(session, job_id)
        if not stored:
            return {}
        box = open_box(self._settings)
        return {name: box.decrypt(ciphertext) for name, ciphertext in stored.items()}

    def _wait(self, runner: subprocess.Popen, spec: Spec, mask: Mask) -> None:
        while runner.poll() is None:
            if self._leave.wait(LOOK_S):
                log.info("job %s goes on without this worker", spec.job_id)
                return
        if runner.returncode not in (EXIT_REPORTED, EXIT_LOST):
            log.warning("the runner of job %s has died: exit code %d", spec.job_id, runner.returncode)
            services = Services.connect(self._settings, self._database)
            conclude(services, spec, mask, runner.returncode)
            services.stream.close()

    def _report_failure(self, claimed: Claim, owner: str, error: Exception) -> None:
        """The attempt cannot even begin on this host."""
        if isinstance(error, BadOutputDirectory):
            outcome = Outcome(Status.failed, Reason.bad_config, str(error))
        elif isinstance(error, MissingInput):
            outcome = Outcome(Status.failed, Reason.artifacts_unavailable, str(error))
        else:
            message = f"Host {self._settings.host_name} could not start the job: {error}."
            outcome = Outcome(Status.failed, Reason.host_failed, message)
        log.error("job %s: %s", claimed.job_id, outcome.message)
        with self._database.transaction() as session:
            finish(session, claimed.job_id, claimed.attempt, owner, outcome, self._settings.retry_policy)
        wake(self._settings.broker_url, SCHEDULER, job_channel(claimed.job_id))


class BadOutputDirectory(Exception):  # noqa: N818 - named after what it tells the user
    """The config's output_dir is no folder of its own inside the workspace."""


def prepare(settings: Settings, claimed: Claim, owner: str, renewed_at: float) -> Spec:
    """Write the workspace of a claimed attempt.

    Raises:
        BadOutputDirectory: the trainer would write where it must not.
        MissingInput: what the job uses is not there.
        OSError: the workspace cannot be written.
    """
    files = Workspace(settings.work_dir / claimed.job_id)
    files.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.attempt(claimed.attempt).path.mkdir(parents=True, exist_ok=True)
    output_dir = str(claimed.config.get("output_dir") or "output")
    _check_output_directory(files, output_dir)
    inputs = input_keys(claimed.inputs)
    write_atomically(files.config, json.dumps(with_inputs(claimed.config, claimed.inputs, files), indent=1))
    spec = Spec(
        job_id=claimed.job_id,
        attempt=claimed.attempt,
        owner=owner,
        command=trainer_command(claimed, files),
        env=device_environment(settings, claimed.devices, os.environ)
        | _roots(settings, files)
        | ({"PORT_RANGE": settings.gang_ports} if settings.gang_ports and len(claimed.nodes) > 1 else {}),
        workspace=str(files.path),
        output_dir=output_dir,
        timeout_s=claimed.timeout_s,
        renewed_at=renewed_at,
        lease_ttl_s=settings.lease_ttl_s,
        heartbeat_s=settings.heartbeat_s,
        outage_s=settings.outage_s,
        stop_grace_s=settings.stop_grace_s,
        inputs=inputs,
        fresh_attempt=claimed.fresh_attempt,
        rank=claimed.rank,
        hosts=len(claimed.nodes),
        first_rank=claimed.rank * len(claimed.devices),
    )
    spec.write()
    return spec


def trainer_command(claimed: Claim, files: Workspace) -> tuple[str, ...]:
    """The command line of the trainer: a process for each device, and its log in the attempt's folder."""
    # -P: nothing that a job writes into its workspace may pass for a module
    words = (sys.executable, "-P", "-m", "trainer", claimed.task, str(files.config))
    hosts = len(claimed.nodes)
    if len(claimed.devices) == 1 and hosts == 1:
        return words
    logs = str(files.attempt(claimed.attempt).path)
    words = (*words, "--nproc", str(len(claimed.devices)), "--logs", logs, "--no-echo")
    if hosts == 1:
        return words
    # where they meet is known when all hosts have come together (see `worker.gang`)
    return (*words, "--nnodes", str(hosts), "--rank", str(claimed.rank), "--separate-hosts")


def _roots(settings: Settings, files: Workspace) -> dict[str, str]:
    """The variable that holds a trainer to this host's roots and to its inputs; a host that names none holds
    it to nothing.
    """
    if not (settings.model_roots or settings.data_roots):
        return {}
    anywhere = (Path("/"),)
    models, data = settings.model_roots or anywhere, settings.data_roots or anywhere
    roots = Roots((*models, files.inputs), (*data, files.inputs), hub=settings.allow_hub)
    return {ROOTS_VARIABLE: roots.to_text()}


def _check_output_directory(files: Workspace, output_dir: str) -> None:
    resolved, root = files.inside(output_dir), files.path.resolve()
    own = resolved is not None and any(
        resolved.is_relative_to(root / name) for name in ("attempts", "inputs")
    )
    if own or resolved in (None, root, root / files.config.name):
        raise BadOutputDirectory(
            f"output_dir: got {output_dir!r}, expected a folder of its own inside the job's workspace. "
            "Use for example './output'."
        )
