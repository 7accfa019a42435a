"""Writes the handbook of reasons from their table: `python -m store.failures_page [FILE]`."""

import sys
from pathlib import Path

from store.reasons import REASONS, Explanation, Fault, Reason, Retry
from store.retry_policy import RetryPolicy

FILE = Path(__file__).parents[1] / "docs" / "failures.md"

_HEAD = """# When a job fails

A job shows its `reason`, a `message`, whose `fault` that is, whether the same job may succeed when it is
tried again as it is (`retry_helps`), and `evidence`: the attempt, host, the trainer's exit code and signal,
the last lines of its log. `GET /reasons` gives what follows as JSON.
This page is generated: `python -m store.failures_page`.

## What the service does by itself

An attempt that has ended is repeated from the last checkpoint, or it is not, by its reason:

| retry | means |
| --- | --- |
| `never` | the same would happen again: the job fails |
| `counted` | as often as the job's `max_retries` says |
| `bounded` | at no charge; {limit} in a row without a new checkpoint fail the job (`REGATTA_FAULT_LIMIT`) |
| `spaced` | always, at no charge, after {backoff:g} seconds (`REGATTA_RETRY_BACKOFF_S`) |
| `free` | always, at no charge and at once |

A job that is repeated after a failure rests first: {backoff:g} seconds (`REGATTA_RETRY_BACKOFF_S`), and twice
as long after each further failure in a row, at most {longest:g} seconds (`REGATTA_LONGEST_RETRY_BACKOFF_S`).
A new checkpoint ends the row. Meanwhile its `message` says until when it waits, and `not_before` too.

A retry that somebody asks for (`POST /jobs/{{id}}/retry`, `regatta retry`) starts all counts anew, and the
job does not rest.
"""

_FAULTS = {
    Fault.user: "What the user can change",
    Fault.data: "What is wrong with the data",
    Fault.infrastructure: "What the operator can change",
    Fault.nobody: "What is nobody's fault",
    None: "Reasons that are no failures",
}


def page() -> str:
    """The page as Markdown."""
    policy = RetryPolicy()
    head = _HEAD.format(limit=policy.fault_limit, backoff=policy.backoff_s, longest=policy.longest_backoff_s)
    return "\n".join([head, *(_section(fault, title) for fault, title in _FAULTS.items())])


def _section(fault: Fault | None, title: str) -> str:
    rows = [(reason, row) for reason, row in REASONS.items() if row.fault is fault]
    return f"## {title}\n\n" + "\n".join(_entry(reason, row) for reason, row in rows)


def _entry(reason: Reason, row: Explanation) -> str:
    lines = [f"### `{reason}`\n", row.meaning]
    if row.remedy:
        lines.append(f"\n**What to do:** {row.remedy}")
    if row.fault is not None:
        helps = "may help" if row.retry_helps else "does not help as long as nothing changes"
        lines.append(f"\nRetry: `{Retry(row.retry)}`. One that somebody asks for {helps}.")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    target.write_text(page(), encoding="utf-8")
