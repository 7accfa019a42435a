"""Follow a job or a pipeline to its end: live progress bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.text import Text

from cli.client import Client, job_path, path_of, told
from cli.output import duration, number, status_text, steps
from regatta_client.following import states

POLL_S = 0.5
LINE_EVERY_S = 2.0


def follow_job(client: Client, job: str, screen: Console) -> dict[str, Any]:
    """Show a job's status and progress until it ends; returns its last state.

    Survives a server that goes away for up to a minute; one that is away at first is not waited for.
    """
    state: dict[str, Any] = {}
    get = partial(client.connection.request, "GET", job_path(job))
    with told(), view_on(screen) as view:
        for state in states(get, POLL_S):
            view.show(state)
    return state


def follow_pipeline(client: Client, pipeline: str, screen: Console) -> dict[str, Any]:
    """Show the jobs of a pipeline until all have ended; returns its last state. Patient as `follow_job`."""
    state: dict[str, Any] = {}
    get = partial(client.connection.request, "GET", path_of("pipelines", pipeline))
    with told(), view_on(screen) as view:
        for state in states(get, POLL_S):
            for job in state["jobs"]:
                view.show(job, job["step"])
    return state


def view_on(screen: Console) -> "View":
    return BarView(screen) if screen.is_terminal else LineView(screen)


class View(Protocol):
    def show(self, job: Mapping[str, Any], name: str = "") -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class BarView:
    """A line for each job that is redrawn: its name, status, bar, steps, loss, tokens/s, time left."""

    def __init__(self, screen: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            console=screen,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, job: Mapping[str, Any], name: str = "") -> None:
        progress = job.get("progress") or {}
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task("waiting", total=None, numbers="")
        self._progress.update(
            self._tasks[name],
            description=f"{name}  {described(job)}" if name else described(job),
            completed=progress.get("step") or 0,
            total=progress.get("total_steps"),
            numbers=numbers(progress),
        )


class LineView:
    """A line for every change of status, and one for the progress every few seconds."""

    def __init__(self, screen: Console) -> None:
        self._screen = screen
        self._shown: dict[str, tuple[str, str]] = {}
        self._next_line: dict[str, float] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, job: Mapping[str, Any], name: str = "") -> None:
        progress = job.get("progress") or {}
        now, before = (described(job), steps(progress)), self._shown.get(name)
        changed_status = before is None or before[0] != now[0]
        if changed_status or (before != now and time.monotonic() >= self._next_line[name]):
            parts = [name, now[0], now[1] and f"step {now[1]}", numbers(progress)]
            self._screen.print("  ".join(part for part in parts if part))
            self._shown[name] = now
            self._next_line[name] = time.monotonic() + LINE_EVERY_S


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
