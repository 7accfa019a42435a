"""One job on the screen."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cli.follow import described, numbers
from cli.output import (
    STATUS_STYLES,
    duration,
    fields_table,
    moment,
    number,
    problem_table,
    seconds_between,
    steps,
)

RUNNING = ("starting", "running", "stopping")
TIMINGS = ("_runtime", "_per_second")  # metrics that say how long an evaluation took


def job_details(
    job: Mapping[str, Any],
    checkpoints: Sequence[Mapping[str, Any]],
    result: Mapping[str, Any] | None = None,
) -> RenderableType:
    parts: list[RenderableType] = [fields_table(_fields(job))]
    if job.get("warnings"):
        parts += [Text("\nWarnings", style="yellow"), problem_table(job["warnings"])]
    if last_lines := (job.get("evidence") or {}).get("log"):
        parts += [Text("\nLast lines", style="bold"), Text("\n".join(last_lines))]
    if checkpoints:
        parts += [Text("\nCheckpoints", style="bold"), checkpoint_table(checkpoints)]
    if result:
        parts += [Text(f"\nResult, {_size(result)}", style="bold"), fields_table(_telling(result))]
    return Group(*parts)


def checkpoint_table(checkpoints: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Name", "Step", "Size", "Metrics"):
        table.add_column(column)
    for checkpoint in checkpoints:
        shown = ", ".join(f"{name} {value}" for name, value in _telling(checkpoint) if value)
        size = _size(checkpoint) if checkpoint.get("bytes") is not None else ""
        table.add_row(*map(Text, (checkpoint["name"], str(checkpoint.get("step", "")), size, shown)))
    return table


def _telling(checkpoint: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Its metrics but for how long things took."""
    metrics = checkpoint.get("metrics") or {}
    return [
        (name, f"{value:,}" if isinstance(value, int) else number(value))
        for name, value in metrics.items()
        if not name.endswith(TIMINGS)
    ]


def _size(checkpoint: Mapping[str, Any]) -> str:
    return f"{checkpoint['bytes'] / 1e6:,.1f} MB"


def devices(resources: Mapping[str, Any]) -> str:
    """How many devices of which kind: `1 cpu`, `8 gpu`, `2 hosts x 8 gpu`."""
    if not resources:
        return ""
    hosts = f"{resources['nodes']} hosts x " if resources["nodes"] > 1 else ""
    return f"{hosts}{resources['devices_per_node']} {resources['device']}"


def places(placement: Sequence[Mapping[str, Any]]) -> str:
    """Hosts with the numbers of the devices there: `pier 0,1; quay 0,1`."""
    return "; ".join(f"{node['host']} {','.join(map(str, node['devices']))}" for node in placement)


def _ending(evidence: Mapping[str, Any]) -> str:
    """How the attempt ended that the evidence is of: `exit code 137 (SIGKILL) on pier, attempt 2`."""
    if evidence.get("attempt") is None:
        return ""
    code, signal = evidence.get("exit_code"), evidence.get("signal")
    ended = "" if code is None else f"exit code {code} "
    by = f"({signal}) " if signal else ""
    return f"{ended}{by}on {evidence.get('host')}, attempt {evidence['attempt']}"


def _fields(job: Mapping[str, Any]) -> list[tuple[str, object]]:
    progress = job.get("progress") or {}
    status = Text(described(job), style=STATUS_STYLES.get(job["status"], ""))
    ran = seconds_between(job.get("started_at"), job.get("finished_at"))
    labels = ", ".join(f"{key}={value}" for key, value in (job.get("labels") or {}).items())
    return [
        ("Job", job["id"]),
        ("Name", job.get("name")),
        ("Task", job["task"]),
        ("Status", status),
        ("Reason", job.get("reason")),
        ("Message", job.get("message")),
        ("Fault", job.get("fault")),
        ("Ended", _ending(job.get("evidence") or {})),
        ("Rests until", moment(job.get("not_before"))),
        ("Before it", (job.get("queue") or {}).get("ahead")),
        ("Pipeline", job.get("pipeline_id")),
        ("Step", steps(progress)),
        ("Progress", numbers(progress)),
        ("Created", moment(job.get("created_at"))),
        ("Started", moment(job.get("started_at"))),
        ("Finished", moment(job.get("finished_at"))),
        ("Ran for", duration(ran)),
        ("Priority", job.get("priority")),
        ("Labels", labels),
        ("Devices", devices(job.get("resources") or {})),
        ("Runs on" if job["status"] in RUNNING else "Ran on", places(job.get("placement") or [])),
    ]
