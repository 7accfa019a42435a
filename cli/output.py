"""What the commands print: tables for people, JSON for programs."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.errors import CliError

UNCOLUMNED_WIDTH = 160  # where no terminal says how wide it is, an id must not be broken in two

STATUS_STYLES = {
    "queued": "cyan",
    "starting": "blue",
    "running": "bold blue",
    "stopping": "yellow",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "yellow",
}


def console(*, stderr: bool = False) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    # Names, messages and log lines are other people's text: no markup or emoji codes are looked for in them.
    return Console(
        stderr=stderr, width=UNCOLUMNED_WIDTH if wide else None, markup=False, highlight=False, emoji=False
    )


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    print(json.dumps(value, ensure_ascii=False), flush=True)


def print_error(error: CliError) -> None:
    screen = console(stderr=True)
    screen.print(Text(str(error), style="red"), soft_wrap=True)
    if error.problems:
        screen.print(problem_table(error.problems))


def problem_table(problems: Iterable[Mapping[str, Any]]) -> Table:
    """Field, problem and remedy of every entry of a 422 answer."""
    table = _table("Field", "Problem", "Remedy")
    for problem in problems:
        table.add_row(
            *map(
                Text, (field_name(problem.get("loc")), _text(problem.get("msg")), _text(problem.get("hint")))
            )
        )
    return table


def field_name(loc: object) -> str:
    """A location as a path: ("body", "config", "seed") is config.seed; a number is an index or a line."""
    if not isinstance(loc, list | tuple):
        return _text(loc)
    name = ""
    for part in loc[1:] if loc[:1] in (["body"], ("body",)) else loc:
        name += f"[{part}]" if isinstance(part, int) else f"{'.' if name else ''}{part}"
    return name


def job_table(jobs: Iterable[Mapping[str, Any]]) -> Table:
    table = _table("Job", "Name", "Task", "Status", "Progress", "Loss", "Created")
    table.columns[0].no_wrap = True
    for job in jobs:
        progress = job.get("progress") or {}
        table.add_row(
            Text(job["id"]),
            Text(_text(job.get("name"))),
            Text(job["task"]),
            status_text(job),
            Text(steps(progress)),
            Text(number(progress.get("loss"))),
            Text(moment(job.get("created_at"))),
        )
    return table


def event_line(event: Mapping[str, Any]) -> str:
    """One event as a line: when, who, what, of which job."""
    what = event["type"]
    if event["to_status"]:
        what = f"{event['from_status'] or ''} -> {event['to_status']} ({event['reason']})".strip()
    words = (moment(event["time"]), event["actor"], what, event["job_id"] or "", event["message"])
    return "  ".join(word for word in words if word)


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table whose first column, an id or a name, is never broken."""
    table = _table(*columns)
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*map(Text, row))
    console().print(table)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of texts; the first column is never broken in two."""
    made = _table(*columns)
    made.columns[0].no_wrap = True
    for row in rows:
        made.add_row(*(Text(_text(value)) for value in row))
    return made


def fields_table(fields: Sequence[tuple[str, object]]) -> Table:
    """Two columns: name and value. Fields without a value are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        if value not in (None, "", {}, []):
            table.add_row(Text(name), value if isinstance(value, Text) else Text(_text(value)))
    return table


def status_text(job: Mapping[str, Any]) -> Text:
    status = str(job["status"])
    return Text(status, style=STATUS_STYLES.get(status, ""))


def steps(progress: Mapping[str, Any]) -> str:
    step, total = progress.get("step"), progress.get("total_steps")
    if step is None:
        return ""
    return f"{step}/{total}" if total else str(step)


def number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def duration(seconds: object) -> str:
    """Seconds as a person reads them: 42s, 3m 05s, 2h 07m."""
    if not isinstance(seconds, int | float) or seconds < 0:
        return ""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02d}m"


def moment(value: object) -> str:
    """An RFC 3339 time of the server in this machine's time zone."""
    if not isinstance(value, str):
        return ""
    return datetime.fromisoformat(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def seconds_between(start: object, end: object) -> float | None:
    """Seconds from one RFC 3339 time to another, which defaults to now."""
    if not isinstance(start, str):
        return None
    until = datetime.fromisoformat(end) if isinstance(end, str) else datetime.now(UTC)
    return (until - datetime.fromisoformat(start)).total_seconds()


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
