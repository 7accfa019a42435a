"""Starts runners; one ahead of its attempt, which has loaded what takes a second and waits for the order."""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from store.settings import Settings
from worker.spec import AHEAD, RUNNER_VARIABLE, Spec


class Runners:
    """The runners that this worker starts, each in a session of its own: they outlive the worker.

    Args:
        ahead: whether a runner waits for the next attempt; it ends with the worker.
    """

    def __init__(self, settings: Settings, *, ahead: bool = False) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._waiting: subprocess.Popen[bytes] | None = None
        self._ahead = ahead
        self._prepare()

    @property
    def ready(self) -> bool:
        """Whether the runner that waits has loaded all, or is dead."""
        output = None if self._waiting is None else self._waiting.stdout
        return output is not None and bool(select.select([output], [], [], 0)[0])

    def start(self, spec: Spec, secrets: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Let the runner that waits, else a new one, run the attempt. It gets the secrets through a pipe.

        Raises: OSError when none can be started.
        """
        runner = self._take()
        if runner is None or not _order(runner, spec, secrets):
            runner = _start(self._settings)
            _order(runner, spec, secrets)  # one that has died already is waited for
        self._prepare()
        return runner

    def _take(self) -> subprocess.Popen[bytes] | None:
        """The runner that waits, if it has loaded all: until then a new one is faster."""
        with self._lock:
            if not self.ready:
                return None
            runner, self._waiting = self._waiting, None
        if runner is not None and runner.stdout is not None:
            runner.stdout.close()
        return runner

    def close(self) -> None:
        """End the runner that waits; no other takes its place."""
        with self._lock:
            self._ahead = False
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.kill()
            waiting.communicate()

    def _prepare(self) -> None:
        with self._lock, suppress(OSError):  # the next attempt tells of it, when it has to be started too
            if self._ahead and self._waiting is None:
                self._waiting = _start(self._settings, AHEAD)


def _start(settings: Settings, *arguments: str) -> subprocess.Popen[bytes]:
    settings.work_dir.mkdir(parents=True, exist_ok=True)
    environment = os.environ | settings_environment(settings)
    return subprocess.Popen(
        # -P: nothing that a job writes into its workspace may pass for a module
        [sys.executable, "-P", "-m", "worker.runner", *arguments],
        cwd=settings.work_dir,
        env=environment | {RUNNER_VARIABLE: str(settings.work_dir)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE if AHEAD in arguments else None,
        start_new_session=True,
    )


def _order(runner: subprocess.Popen[bytes], spec: Spec, secrets: Mapping[str, str]) -> bool:
    """Hand the attempt over; False when the runner has died before."""
    if runner.stdin is None or runner.poll() is not None:
        return False
    order = {"spec": str(spec.folder.spec), "secrets": dict(secrets)}
    try:
        with runner.stdin as pipe:
            pipe.write(json.dumps(order).encode())
    except BrokenPipeError:
        return False
    return True


def settings_environment(settings: Settings) -> Mapping[str, str]:
    """The variables that give another process these settings."""
    prefix = settings.model_config.get("env_prefix", "")
    values = settings.model_dump(mode="json")
    return {
        f"{prefix}{name.upper()}": value if isinstance(value, str) else json.dumps(value)
        for name, value in values.items()
        if value is not None
    }
