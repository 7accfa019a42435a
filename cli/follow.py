"""Follow a job to its end: a live progress bar on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from cli.client import Client, job_path, told
from cli.output import duration, number, status_text, steps
from regatta_client.following import states

POLL_S = 0.5
LINE_EVERY_S = 2.0


def follow_job(client: Client, job: str, screen: Console) -> dict[str, Any]:
    """Show a job's status and progress until it ends; returns its last state.

    Survives a server that goes away for up to a minute; one that is away at first is not waited for.
    """
    state: dict[str, Any] = {}
    view: View = BarView(screen) if screen.is_terminal else LineView(screen)
    get = partial(client.connection.request, "GET", job_path(job))
    with told(), view:
        for state in states(get, POLL_S):
            view.show(state)
    return state


class View(Protocol):
    def show(self, job: Mapping[str, Any]) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BarView:
    """One line that is redrawn: status, bar, steps, loss, tokens/s, time left."""

    def __init__(self, screen: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=screen,
        )
        self._task = self._progress.add_task("waiting", total=None, numbers="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, job: Mapping[str, Any]) -> None:
        progress = job.get("progress") or {}
        self._progress.update(
            self._task,
            description=described(job),
            completed=progress.get("step") or 0,
            total=progress.get("total_steps"),
            numbers=numbers(progress),
        )


class LineView:
    """A line for every change of status, and one for the progress every few seconds."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._shown: tuple[str, str] | None = None
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, job: Mapping[str, Any]) -> None:
        progress = job.get("progress") or {}
        now = (described(job), steps(progress))
        changed_status = self._shown is None or self._shown[0] != now[0]
        if changed_status or (self._shown != now and time.monotonic() >= self._next_line):
            parts = [now[0], now[1] and f"step {now[1]}", numbers(progress)]
            self._screen.print("  ".join(part for part in parts if part))
            self._shown = now
            self._next_line = time.monotonic() + LINE_EVERY_S


def described(job: Mapping[str, Any]) -> str:
    attempt = job.get("attempt") or 1
    return f"{job['status']} (attempt {attempt})" if attempt > 1 else str(job["status"])


def numbers(progress: Mapping[str, Any]) -> str:
    """Loss, speed and time left, as far as they are known."""
    parts = []
    if progress.get("loss") is not None:
        parts.append(f"loss {number(progress['loss'])}")
    if progress.get("tokens_per_second"):
        parts.append(f"{progress['tokens_per_second']:,.0f} tokens/s")
    if progress.get("eta_s"):
        parts.append(f"{duration(progress['eta_s'])} left")
    return "  ".join(parts)


def outcome(job: Mapping[str, Any]) -> Text:
    """One sentence about how a job ended."""
    text = Text("Job ").append(job["id"]).append(" ").append_text(status_text(job))
    message = job.get("message") or (job.get("reason") if job["status"] != "succeeded" else "")
    return text.append(f": {message}" if message else ".")
