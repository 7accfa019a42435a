"""How the hosts of an attempt come together before their trainers start.

Each host first delivers what earlier attempts left there. When all have, the first one decides from which
checkpoint they go on: the newest that is complete. Each fetches that and what else the job needs; when all
have, the first one holds a port and says where the trainers meet.
"""

import json
import logging
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from store.artifacts import Manifest
from store.checkpoints import get_checkpoint, list_checkpoints
from store.errors import ArtifactError
from store.gangs import READY, RECOVERED, Meeting, announce_address, arrive, decide_start
from worker.address import hold_port, own_address
from worker.clock import boottime
from worker.inputs import MissingInput
from worker.publishing import CHECKPOINT_DIRECTORY
from worker.pump import Fenced
from worker.services import Services
from worker.spec import Spec

POLL_S = 0.1
LONGEST_POLL_S = 1.0

log = logging.getLogger(__name__)


class NotMet(Exception):  # noqa: N818 - a finding about the other hosts; the message is for the user
    """The hosts of the attempt did not come together."""


class Gathering:
    """This host's way to the others.

    Args:
        answer: asks until there is an answer; see `Supervisor`.
        unwanted: tells whether the attempt is to be given up: somebody wants it to stop.
    """

    def __init__(
        self,
        services: Services,
        spec: Spec,
        answer: Callable[[Callable[[], Any]], Any],
        unwanted: Callable[[], bool],
    ) -> None:
        self._services = services
        self._spec = spec
        self._answer = answer
        self._unwanted = unwanted
        self._holder: socket.socket | None = None

    def checkpoint(self) -> str | None:
        """Wait until it is decided which checkpoint all go on from, and return its name; None: the beginning.

        Raises: NotMet; Fenced when the attempt is over; Unwanted.
        """
        first = self._spec.rank == 0
        meeting = self._wait(RECOVERED, lambda now: now.decided or (first and now.all_are(RECOVERED)))
        if not meeting.decided:
            self._tell(decide_start, self._newest())
            meeting = self._wait(RECOVERED, lambda now: now.decided)
        return meeting.checkpoint

    def address(self) -> str:
        """Wait until all hosts are ready, and return where their trainers meet.

        Raises: as `checkpoint`.
        """
        first = self._spec.rank == 0
        meeting = self._wait(READY, lambda now: now.all_are(READY) if first else now.address is not None)
        if meeting.address is None:
            self._holder = hold_port(self._services.settings)
            address = f"{own_address(self._services.settings)}:{self._holder.getsockname()[1]}"
            self._tell(announce_address, address)
            log.info("the trainers of this job meet at %s", address)
            meeting = self._wait(READY, lambda now: now.address is not None)
        return meeting.address or ""

    def close(self) -> None:
        """Let the port go: the trainer has it, or nobody needs it any more."""
        if self._holder is not None:
            self._holder.close()

    def _wait(self, stage: int, reached: Callable[[Meeting], bool]) -> Meeting:
        until, pause_s = boottime() + self._services.settings.gang_timeout_s, POLL_S
        while True:
            meeting: Meeting | None = self._answer(lambda: self._arrive(stage))
            if meeting is None:
                raise Fenced
            if reached(meeting):
                return meeting
            if self._unwanted():
                raise Unwanted
            if boottime() > until:
                late = [rank for rank, found in enumerate(meeting.stages) if found < stage]
                who = f"hosts {late}" if late else "the first host"
                raise NotMet(
                    f"Waited {self._services.settings.gang_timeout_s:g} seconds for {who} of the job."
                )
            time.sleep(pause_s)
            pause_s = min(1.5 * pause_s, LONGEST_POLL_S)

    def _arrive(self, stage: int) -> Meeting | None:
        spec = self._spec
        with self._services.database.transaction() as session:
            return arrive(session, spec.job_id, spec.attempt, spec.owner, stage)

    def _newest(self) -> str | None:
        with self._services.database.reading() as session:
            published = list_checkpoints(session, self._spec.job_id)
        names = [one.name for one in published if CHECKPOINT_DIRECTORY.fullmatch(one.name)]
        return max(names, key=lambda name: int(name.rpartition("-")[2]), default=None)

    def _tell(self, what: Callable[..., bool], value: str | None) -> None:
        """Write what the other hosts wait for. Raises: Fenced when the attempt is over."""
        spec = self._spec

        def told() -> bool:
            with self._services.database.transaction() as session:
                return what(session, spec.job_id, spec.attempt, spec.owner, value)

        if not self._answer(told):
            raise Fenced


class Unwanted(Exception):  # noqa: N818 - a state of affairs, not a fault
    """Somebody wants the job to stop before its trainer has started."""


def restore(services: Services, spec: Spec, name: str | None) -> None:
    """Let the workspace have that checkpoint in full, and no other: what this host alone saved is a part.

    Raises:
        MissingInput: the checkpoint was deleted or is damaged.
        OSError: the artifacts do not answer, or this host has no room.
    """
    output = spec.files.inside(spec.output_dir)
    if output is None:
        return
    found = [path for path in output.glob("checkpoint-*") if CHECKPOINT_DIRECTORY.fullmatch(path.name)]
    key, manifest = _published(services, spec, name)
    for directory in found:
        if directory.name != name or not _has(directory, manifest):
            shutil.rmtree(directory)
    if name is None or (output / name).is_dir():
        return
    try:
        services.artifacts.fetch_directory(key, output / name)
    except (FileNotFoundError, ArtifactError) as error:
        raise MissingInput(f"{name} cannot be used: {error}.") from error
    log.info("%s was restored", name)


def _published(services: Services, spec: Spec, name: str | None) -> tuple[str, Manifest]:
    if name is None:
        return "", Manifest(())
    with services.database.reading() as session:
        checkpoint = get_checkpoint(session, spec.job_id, name)
    if checkpoint is None:
        raise MissingInput(f"{name}, which the job was to go on from, was deleted.")
    return checkpoint.key, Manifest.from_json(json.dumps({"files": checkpoint.files}).encode())


def _has(directory: Path, manifest: Manifest) -> bool:
    """Whether a directory has all the files, in their sizes; the trainer compares their contents."""
    return all(
        (directory / entry.path).is_file() and (directory / entry.path).stat().st_size == entry.bytes
        for entry in manifest.files
    )
