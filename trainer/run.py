"""The trainer as a process: arguments in, log lines and events out, an exit code that says how it went.

``python -m trainer TASK CONFIG.json [--set key=value ...] [--nproc N ...]``

Exit codes: 0 done, or stopped after SIGTERM with a checkpoint; 2 bad config; 3 bad data; 75 the deadline
passed; 128 + N one of several processes was killed by signal N; 1 anything else. Events are described in
`trainer.events`. Arguments are checked before Paddle is imported, and before more processes are started.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.config import AVAILABLE_TASKS, TaskConfig, load_config, task_problem
from trainer.config.data_files import FIELD, PREFERENCE_FILES
from trainer.config.preflight import Checked, Roots, check_job, path_problems
from trainer.config.preflight.hub import cache_folder
from trainer.config.problems import ConfigError, DataError, Problem, RegattaError
from trainer.events import EventWriter
from trainer.failures import DISK, describe
from trainer.files import held_folder
from trainer.hub import with_fetched_models
from trainer.launcher.gang import Gang, add_gang_options, gang_of
from trainer.launcher.run import run_gang
from trainer.loop.guard import StopRequest, start_deadline_guard
from trainer.ops.host import configure_cpu

log = logging.getLogger(__name__)

#: Tasks whose result is not there in parts.
_WHOLE_OR_NOTHING = ("quantize", "merge", "export")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one task as the command line says; returns the exit code."""
    arguments = _parser().parse_args(argv)
    start_deadline_guard()
    should_stop = StopRequest()
    should_stop.listen()
    log_to_stdout()
    events = EventWriter.from_environment()
    try:
        # of several hosts the first one speaks; the others tell only why they fail
        spoken = events if arguments.rank == 0 else EventWriter()
        words = arguments.task, arguments.config, arguments.set
        config = read_arguments(*words, spoken, lambda config: gang_of(arguments, config, os.environ).world)
        gang = gang_of(arguments, config, os.environ)
        with _output_folder(config) if gang.node == 0 or gang.separate else contextlib.nullcontext():
            if gang.world > 1:
                return run_gang(gang, arguments, config, events, should_stop)
            _show_devices(gang)
            configure_cpu(keep_freed_memory=arguments.task != "quantize")
            import_paddle(should_stop)
            run_task(arguments.task, config, events, should_stop)
    except BaseException as error:
        return report_failure(error, events)
    return 0


@contextlib.contextmanager
def _output_folder(config: TaskConfig) -> Iterator[None]:
    """Inside, the run has its output_dir to itself; of hosts that share it the first one asks for all.

    Raises:
        ConfigError: another run has it, or it cannot be made.
    """
    folder = Path(config.resolved()["output_dir"])
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(held_folder(folder))
        except BlockingIOError:
            msg = f"{folder} is in use by another run"
            hint = "Wait for its end, or name another folder."
            raise ConfigError(Problem(("output_dir",), msg, hint)) from None
        except OSError as error:
            msg = f"{folder} cannot be made or opened ({error.strerror})"
            hint = "Name a folder that you may write to."
            raise ConfigError(Problem(("output_dir",), msg, hint)) from error
        yield


def run_task(
    task: str, config: TaskConfig, events: EventWriter, should_stop: Callable[[], bool]
) -> dict[str, Any]:
    """Run a task in this process and return its result, which is also the last event.

    Args:
        task: one of `trainer.config.AVAILABLE_TASKS`.
        config: the task's config; its paths are absolute, or relative to the working directory.
        events: where progress is told.
        should_stop: asked between steps; True means: save a checkpoint and end.

    Returns:
        path: absolute directory of the final model, or of the last checkpoint when stopped; metrics; stopped;
        kept: whether there is something at the path.

    Raises:
        RegattaError: it cannot be done, and why.
    """
    with _without_collection():
        run = _runner(task)
    result = run(config, events, should_stop)
    result["kept"] = not (result["stopped"] and task in _WHOLE_OR_NOTHING)
    events.write("result", **result)
    log.info("%s: %s", _ending(result), result["path"])
    return result


def _ending(result: Mapping[str, Any]) -> str:
    if not result["stopped"]:
        return "done"
    return "stopped, and saved" if result["kept"] else "stopped, and nothing is kept"


def _runner(task: str) -> Callable[[Any, EventWriter, Callable[[], bool]], dict[str, Any]]:
    """What runs a task. Its room is imported now, because that imports Paddle."""
    if task in ("finetune", "evaluate"):
        from trainer.loop.finetune import finetune

        return finetune
    if task in ("dpo", "kto"):
        from trainer.loop.align import align

        return align
    if task == "quantize":
        from trainer.loop.quantize import quantize

        return quantize
    if task == "merge":
        from trainer.loop.merge import merge

        return merge
    if task == "export":
        from trainer.loop.export import export

        return export
    raise ConfigError(f"task {task} is not available in this version")


def import_paddle(should_stop: StopRequest) -> None:
    """Import Paddle without the noise it makes and without its signal handlers.

    Its own handler of SIGTERM, installed by the import, would end the process in the middle of a step.
    """
    for words in ("No ccache found", "Current global rank"):
        warnings.filterwarnings("ignore", message=words)
    with should_stop.held(), contextlib.redirect_stderr(io.StringIO()), _without_collection():
        import paddle  # noqa: F401


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    """Inside, modules are imported, and nobody looks again and again for garbage among what they define."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def report_failure(error: BaseException, events: EventWriter) -> int:
    """Tell log and events why the task ended, in words that a user can act on; returns the exit code."""
    log_failure(error)
    failure = describe(error)
    with contextlib.suppress(OSError):  # on a full disk the log is all that is left
        events.fail(failure.kind, failure.msg, failure.problems)
    return failure.exit_code


def log_failure(error: BaseException) -> None:
    """Tell the log why a process ends: what a user can act on in a sentence, all else with its traceback.

    Raises: SystemExit, when that is the error.
    """
    if isinstance(error, SystemExit):
        raise error
    if isinstance(error, RegattaError):
        log.error("%s", error)
    elif (failure := describe(error)).kind == DISK:
        log.error("%s", failure.msg)
    else:
        log.error("the trainer failed", exc_info=error)


def _show_devices(gang: Gang) -> None:
    """Let Paddle see the device that was asked for, and no other."""
    if gang.devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gang.visible


def read_arguments(
    task: str,
    path: Path,
    overrides: Sequence[str],
    events: EventWriter,
    processes: Callable[[TaskConfig], int | None] = lambda config: None,
) -> TaskConfig:
    """The checked config of a task, with absolute paths; warnings become events.

    Args:
        processes: how many will run it; None: as few as its parallel degrees need.

    Raises:
        ConfigError, DataError: the arguments, or the files they name, cannot be used.
    """
    if problem := task_problem(task):
        raise ConfigError(problem)
    reading = load_config(task, path, overrides)
    for warning in reading.warnings:
        events.warn(warning)
    roots = _roots()
    if reading.config is None:
        raise ConfigError([*reading.problems, *path_problems(reading, roots, Path.cwd())])
    world = processes(reading.config)
    checked = _checked(reading.config, roots, world)
    config = with_fetched_models(checked.config)
    if config is not checked.config:
        checked = _checked(config, roots, world)
    for warning in checked.warnings:
        events.warn(warning)
    return checked.config


def _roots() -> Roots | None:
    """Where this process may read, as ``REGATTA_ROOTS`` tells (see `Roots.to_text`); None: anywhere.

    A job was checked when it was sent; what lies at its paths may have become a link to elsewhere since.
    """
    text = os.environ.get("REGATTA_ROOTS")
    if not text:
        return None
    roots = Roots.from_text(text)
    return replace(roots, models=(*roots.models, cache_folder()))


def _checked(config: TaskConfig, roots: Roots | None, world: int | None) -> Checked:
    """What is known about a config whose models may still have to be fetched."""
    checked = check_job(config, roots, Path.cwd(), world)
    if checked.problems:
        data = {FIELD, *PREFERENCE_FILES.values()}
        about_data = all(problem.loc[0] in data for problem in checked.problems)
        raise (DataError if about_data else ConfigError)(checked.problems)
    return checked


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer", description="Train a model as an argument file says."
    )
    parser.add_argument("task", metavar="TASK", help=f"what to do: {', '.join(AVAILABLE_TASKS)}")
    parser.add_argument("config", metavar="CONFIG.json", type=Path, help="argument file")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one argument; repeatable"
    )
    add_gang_options(parser)
    return parser


class _LogFormatter(logging.Formatter):
    """Time and message; the level only where it matters."""

    def format(self, record: logging.LogRecord) -> str:
        record.mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return super().format(record)


def log_to_stdout() -> None:
    """Let the trainer's words go to stdout."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(_LogFormatter("%(asctime)s %(mark)s%(message)s", "%H:%M:%S"))
    logger = logging.getLogger("trainer")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
