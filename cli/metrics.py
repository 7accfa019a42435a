"""A job's metrics, from the server's history and live."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cli.client import Client
from cli.sse import read_history


def read_metrics(
    client: Client, job: str, *, kind: str | None = None, follow: bool = False
) -> Iterator[dict[str, Any]]:
    """The metrics of a job as the server's objects, oldest first; of one kind, or of all.

    With `follow`, goes on until the job has ended. A step that a later attempt repeats comes again.
    """
    return read_history(client, job, "metrics", "metric", {"kind": kind}, live=follow)


def point(metric: Mapping[str, Any], name: str) -> float | None:
    """A number of a metric by its name; None where it has none that is finite."""
    value = metric["values"].get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def names(metrics: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of all values, in the order in which they first came."""
    return list(dict.fromkeys(name for metric in metrics for name in metric["values"]))
