"""A job's log lines, from the server's history and live."""

import json
from collections.abc import Iterator
from typing import Any

from cli.client import Client, job_path
from cli.sse import follow as follow_stream

LINE_EVENT = "log"


def read_lines(
    client: Client, job: str, *, follow: bool, tail: int | None = None, rank: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the log's lines as the server's objects (`line`, `rank`, `attempt`, `t` …), each once.

    With `follow`, goes on until the job has ended, over any number of lost connections.
    """
    path, query = job_path(job, "logs"), {"tail": tail, "rank": rank}
    if not follow:
        yield from client.items(path, query)
        return
    client.get(job_path(job))  # patience is for servers that go away, not for one that was never there
    for event in follow_stream(client, path, query):
        if event.type == LINE_EVENT:
            yield json.loads(event.data)
