"""Supervises one attempt of one job: `python -m worker.runner <spec.json>`, in a session of its own.

Of this program's life the first part is here: start the trainer, as early as possible, hence with the
standard library alone. Everything that follows needs the store and is in `worker.supervisor`.

Exit codes: 0 when an outcome was reported, 75 when the attempt was lost to another one or could not report.
"""

import json
import os
import sys
from pathlib import Path

from worker.clock import boottime
from worker.deadline import Deadline
from worker.process import Termination, TrainerStart, become_subreaper
from worker.spec import Spec
from worker.wakeup import Wakeup

EXIT_REPORTED = 0
EXIT_LOST = 75


def main() -> int:
    """Run the attempt that the spec file describes."""
    spec = Spec.read(Path(sys.argv[1]))
    secrets = read_secrets()
    wakeup, termination = Wakeup(), Termination()
    termination.install()
    become_subreaper()
    if boottime() > spec.renewed_at + spec.lease_ttl_s:
        return EXIT_LOST
    deadline = Deadline(spec.folder.deadline, spec.lease_ttl_s, spec.outage_s)
    deadline.extend(spec.renewed_at)
    start = TrainerStart(spec, dict(os.environ), secrets)
    if spec.attempt == 1 and not spec.inputs:  # later ones look first for what is left of the earlier ones
        start()

    from worker.supervisor import supervise

    return EXIT_REPORTED if supervise(spec, start, deadline, wakeup, termination) else EXIT_LOST


def read_secrets() -> dict[str, str]:
    """The variables that the launcher hands over through a pipe: they are in no file and no command line.

    Raises: ValueError when the launcher was gone before it had written them all.
    """
    return json.loads(sys.stdin.buffer.read())


if __name__ == "__main__":
    sys.exit(main())
