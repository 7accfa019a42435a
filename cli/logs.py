"""A job's log lines, from the server's history and live."""

from collections.abc import Iterator
from typing import Any

from cli.client import Client
from cli.sse import read_history


def read_lines(
    client: Client, job: str, *, follow: bool, tail: int | None = None, rank: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the log's lines as the server's objects (`line`, `rank`, `attempt`, `t` …), each once.

    With `follow`, goes on until the job has ended, over any number of lost connections.
    """
    return read_history(client, job, "logs", "log", {"tail": tail, "rank": rank}, live=follow)
