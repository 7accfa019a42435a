"""What a runner is told when it starts. Standard library only."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from worker.workspace import AttemptFolder, Workspace, write_atomically

RUNNER_VARIABLE = "REGATTA_RUNNER"
"""Environment variable that marks a runner; its current folder is that of its attempt, once it has one."""
AHEAD = "--ahead"
"""Argument of a runner that is started before there is an attempt for it."""
EVENTS_VARIABLE = "REGATTA_EVENTS"
"""Environment variable of a trainer, and so the mark of all it starts: the path of its event file."""
ROOTS_VARIABLE = "REGATTA_ROOTS"
"""Environment variable of a trainer: the folders that it may read models and data from."""
DEADLINE_VARIABLE = "REGATTA_DEADLINE_FILE"
"""Environment variable of a trainer: the file that tells until when it may go on."""


@dataclass(frozen=True)
class Spec:
    """One attempt of one job on this host."""

    job_id: str
    attempt: int
    owner: str
    """Who holds the lease: unique for every claim."""
    command: tuple[str, ...]
    """The trainer's command line, started in the workspace."""
    env: dict[str, str]
    """Variables that the trainer gets beside those of the host."""
    workspace: str
    output_dir: str
    """Where the trainer saves, relative to the workspace."""
    timeout_s: float | None
    """Longest run of the trainer in this attempt."""
    renewed_at: float
    """CLOCK_BOOTTIME seconds just before the lease was taken."""
    lease_ttl_s: float
    heartbeat_s: float
    outage_s: float
    stop_grace_s: float
    inputs: dict[str, str] = field(default_factory=dict)
    """What has to be fetched into `inputs/` before the trainer starts: keys of artifacts by name."""
    fresh_attempt: int = 1
    """What attempts before this one have saved is not gone on from."""

    rank: int = 0
    """Number of this host among those of the attempt."""
    hosts: int = 1
    """How many there are."""
    first_rank: int = 0
    """Rank of the first trainer process on this host, among those of all hosts."""

    @property
    def files(self) -> Workspace:
        return Workspace(Path(self.workspace))

    @property
    def folder(self) -> AttemptFolder:
        return self.files.attempt(self.attempt)

    def write(self) -> Path:
        """Store the spec in the attempt's folder, which must exist."""
        write_atomically(self.folder.spec, json.dumps(asdict(self), indent=1))
        return self.folder.spec

    @classmethod
    def read(cls, path: Path) -> "Spec":
        """The spec that `write` has stored."""
        fields = json.loads(path.read_text())
        return cls(**{**fields, "command": tuple(fields["command"])})
