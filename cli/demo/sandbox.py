"""A service of its own for the demonstration: started, found and stopped as any user would do it."""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from cli.errors import CliError
from cli.supervisor import bound_to_this_process

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 90.0


class Sandbox:
    """Folders and commands of one demonstration. Settings of the environment do not reach it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.models = directory / "models"
        self.datasets = directory / "datasets"
        self.service = directory / "service"
        self.result = directory / "trained-model"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")
        }

    def show(self, screen: Console, *words: str, url: str | None = None) -> None:
        """Run a `regatta` command (against the server at `url`), and show its line."""
        address = f"REGATTA_URL={url} " if url else ""
        screen.print(f"$ {address}regatta {shlex.join(words)}", style="cyan", soft_wrap=True)
        self.regatta(*words, url=url)

    def regatta(self, *words: str, url: str | None = None) -> str:
        """Run a `regatta` command and return what it prints.

        Raises:
            CliError: it ended with another exit status than 0.
        """
        environment = self.environment | ({"REGATTA_URL": url} if url else {})
        done = subprocess.run(_command(words), env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CliError(f"`regatta {' '.join(words)}` failed:\n{done.stdout}{done.stderr}".rstrip())
        return done.stdout

    @contextlib.contextmanager
    def running(self, screen: Console) -> Iterator[str]:
        """`regatta up` on a free port while the block lasts, its line shown; gives its URL.

        Raises:
            CliError: it does not become ready, or does not end cleanly.
        """
        words = ["up", "--data-dir", str(self.service), "--port", "0"]
        words += ["--model-root", str(self.models), "--data-root", str(self.datasets)]
        screen.print(f"$ regatta {shlex.join(words)}", style="cyan", soft_wrap=True)
        log = self.directory / "up.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                _command(words),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=bound_to_this_process(signal.SIGTERM),
            )
        try:
            url = self._url(process, log)
            screen.print(log.read_text().strip(), soft_wrap=True)
            yield url
        finally:
            _stop(process, log)

    def _url(self, process: subprocess.Popen[bytes], log: Path) -> str:
        announcement = self.service / "run" / "server.json"
        deadline = time.monotonic() + START_TIMEOUT_S
        while not announcement.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise CliError(f"The service did not start:\n{log.read_text()}")
            time.sleep(0.05)
        return json.loads(announcement.read_text())["url"]


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", "cli", *words]


def _stop(process: subprocess.Popen[bytes], log: Path) -> None:
    process.terminate()
    try:
        code = process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise CliError(f"The service did not stop within {STOP_TIMEOUT_S:g} s:\n{log.read_text()}") from None
    if code:
        raise CliError(f"The service ended with exit status {code}:\n{log.read_text()}")
