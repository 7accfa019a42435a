"""Event streams of a server, as commands follow them."""

from collections.abc import Iterator, Mapping
from typing import Any

from cli.client import Client, told
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
