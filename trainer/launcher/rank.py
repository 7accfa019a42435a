"""The script that Paddle's launcher runs in every rank: ``rank.py FOLDER TASK``."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.launcher.command import SEPARATE_HOSTS
from trainer.launcher.membership import bind_to_launcher, global_rank
from trainer.launcher.records import Records

if TYPE_CHECKING:
    from trainer.loop.guard import StopRequest


def main() -> int:
    """Run this rank's part of a task; the folder holds the config that the supervisor has checked."""
    folder, task = Path(sys.argv[1]), sys.argv[2]
    records, rank = Records(folder), global_rank()
    bind_to_launcher(records)

    from trainer.loop.guard import StopRequest, start_deadline_guard

    should_stop = StopRequest()
    should_stop.listen_aside()
    start_deadline_guard()
    records.begin(rank)
    from trainer.failures import describe
    from trainer.run import log_failure

    try:
        _run(task, folder / "config.json", rank, should_stop)
    except BaseException as error:
        log_failure(error)
        failure = describe(error)
        problems = tuple(problem.as_dict() for problem in failure.problems)
        records.end(rank, failure.exit_code, failure.kind, failure.msg, problems)
        return failure.exit_code
    records.end(rank, 0)
    return 0


def _run(task: str, path: Path, rank: int, should_stop: StopRequest) -> None:
    from trainer.config import load_config
    from trainer.config.problems import ConfigError
    from trainer.events import EventWriter
    from trainer.ops.host import configure_cpu
    from trainer.run import import_paddle, log_to_stdout, run_task

    log_to_stdout()
    reading = load_config(task, path)
    if reading.config is None:
        raise ConfigError(reading.problems)
    configure_cpu()
    import_paddle(should_stop)
    events = EventWriter.from_environment(_told_by(rank))
    run_task(task, reading.config, events, should_stop)


def _told_by(rank: int) -> Collection[str] | None:
    """The kinds of events that a rank tells; None: all. Where hosts share no folder, the first rank of each
    tells what its host has of what was saved.
    """
    from trainer.events import OF_FOLDERS

    if rank == 0:
        return None
    first = os.environ.get(SEPARATE_HOSTS) and os.environ["PADDLE_LOCAL_RANK"] == "0"
    return OF_FOLDERS if first else ()


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Paddle's own way out may abort when another rank is faster; everything is written by now.
    os._exit(code)
