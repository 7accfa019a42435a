"""Event streams of a server, as commands follow them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from cli.client import Client, job_path, told
from regatta_client.following import PATIENCE_S
from regatta_client.following import follow as follow_stream
from regatta_client.sse import Event


def follow(
    client: Client, path: str, params: Mapping[str, Any] | None = None, patience_s: float = PATIENCE_S
) -> Iterator[Event]:
    """Yield a stream's events until its `end` event (which is yielded too), over any number of connections.

    Raises:
        ServerAway: no event and no connection for `patience_s` seconds.
        ApiError: the server refuses the stream, for example because the job is unknown.
    """
    with told():
        yield from follow_stream(client.connection, path, params, patience_s)


def read_history(
    client: Client, job: str, history: str, item: str, query: Mapping[str, Any], *, live: bool
) -> Iterator[dict[str, Any]]:
    """The items of a job's history, oldest first, each once.

    Args:
        history: `logs` or `metrics`.
        item: what the events of its stream that hold an item are called.
        live: go on until the job has ended, over any number of lost connections.
    """
    path = job_path(job, history)
    if not live:
        yield from client.items(path, query)
        return
    client.get(job_path(job))  # patience is for servers that go away, not for one that was never there
    for event in follow(client, path, query):
        if event.type == item:
            yield json.loads(event.data)
