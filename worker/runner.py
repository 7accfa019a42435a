"""Supervises one attempt of one job: `python -m worker.runner`, in a session of its own.

The order comes through standard input: a JSON object with the path of the attempt's spec and the secrets of
its job, which are in no file and no command line. A runner starts the trainer as early as possible: hence
before it loads anything but the standard library, or, started with `--ahead`, after it has loaded everything,
said so on standard output, and waited for the order.

Exit codes: 0 when an outcome was reported, or no order came; 75 when the attempt was lost to another one or
could not report.
"""

import importlib
import json
import os
import sys
from pathlib import Path

from worker.clock import boottime
from worker.deadline import Deadline
from worker.process import Termination, TrainerStart, become_subreaper
from worker.spec import AHEAD, Spec
from worker.wakeup import Wakeup
from worker.workspace import AttemptFolder

EXIT_REPORTED = 0
EXIT_LOST = 75


def main() -> int:
    """Run the attempt that the order names."""
    if AHEAD in sys.argv[1:]:
        importlib.import_module("worker.supervisor")
        try:
            os.write(sys.stdout.fileno(), b"ready\n")
        except BrokenPipeError:  # the worker has gone
            return EXIT_REPORTED
    order = json.loads(sys.stdin.buffer.read() or "null")
    if order is None:  # the worker has gone
        return EXIT_REPORTED
    spec = Spec.read(Path(order["spec"]))
    move_to(spec.folder)
    wakeup, termination = Wakeup(), Termination()
    termination.install()
    become_subreaper()
    if boottime() > spec.renewed_at + spec.lease_ttl_s:
        return EXIT_LOST
    deadline = Deadline(spec.folder.deadline, spec.lease_ttl_s, spec.outage_s)
    deadline.extend(spec.renewed_at)
    start = TrainerStart(spec, dict(os.environ), order["secrets"])
    # later ones look first for what is left of the earlier ones, and several hosts for each other
    if spec.attempt == 1 and not spec.inputs and spec.hosts == 1:
        start()

    from worker.supervisor import supervise

    return EXIT_REPORTED if supervise(spec, start, deadline, wakeup, termination) else EXIT_LOST


def move_to(folder: AttemptFolder) -> None:
    """Make the attempt's folder the current one, which tells whose runner this is, and write to its log."""
    os.chdir(folder.path)
    with folder.runner_log.open("ab") as log:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())


if __name__ == "__main__":
    sys.exit(main())
