"""A task on several processes, from its checked config to an exit code and, if it failed, one error event."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path

from trainer.config import TaskConfig
from trainer.config.problems import ConfigError, Problem
from trainer.events import EventWriter
from trainer.launcher.gang import Gang
from trainer.launcher.records import Records
from trainer.launcher.supervise import last_lines, supervise
from trainer.launcher.verdict import Verdict

log = logging.getLogger(__name__)

RANK_SCRIPT = Path(__file__).with_name("rank.py")


def run_gang(
    gang: Gang,
    arguments: argparse.Namespace,
    config: TaskConfig,
    events: EventWriter,
    should_stop: Callable[[], bool],
) -> int:
    """Run a task on several processes. Rank 0 writes the events, but for an error: that is told here.

    Args:
        arguments: task, logs and no_echo are heeded.
        config: checked, with absolute paths; the ranks take it as it is.

    Returns:
        The exit code; see `trainer.run`.
    """
    folder = (arguments.logs or Path(getattr(config, "output_dir", ".")) / "logs").absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder}, for the logs of the processes, cannot be made ({error.strerror})"
        raise ConfigError(Problem(("logs",), msg, "Name a folder that you may write to.")) from error
    (folder / "config.json").write_text(json.dumps(config.resolved(), indent=1), encoding="utf-8")
    hosts = f" on each of {gang.nnodes} hosts" if gang.nnodes > 1 else ""
    log.info("starting %d processes%s; their logs: %s", gang.nproc, hosts, folder)
    echo = None if arguments.no_echo else sys.stdout.buffer
    verdict = supervise(gang, RANK_SCRIPT, [arguments.task], folder, should_stop=should_stop, echo=echo)
    if verdict.msg:
        _tell(verdict, folder, events, with_log=echo is not None)
    return verdict.exit_code


def _tell(verdict: Verdict, folder: Path, events: EventWriter, *, with_log: bool) -> None:
    """Report a failure; with the end of the log of the rank that failed, unless that was shown before.

    What stands in a log that is shown is not said again.
    """
    if with_log and verdict.rank not in (None, 0):
        path = Records(folder).raw_log(verdict.rank)
        lines = "".join(f"\n  {line}" for line in last_lines(path))
        log.error("the last lines of rank %d (%s):%s", verdict.rank, path, lines)
    if not (with_log and verdict.logged):
        log.error("%s", verdict.msg)
    problems = [Problem(tuple(told["loc"]), told["msg"], told["hint"]) for told in verdict.problems]
    events.fail(verdict.kind, verdict.msg, problems, verdict.rank)
