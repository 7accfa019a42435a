"""Creation of gloo groups, each with a meeting place of its own.

`ProcessGroupGloo` publishes its addresses under the bare keys "0", "1", ... of the store it is given. Groups
that share a store read each other's or outdated addresses, and fail to connect or hang. Here every group but
the first gets its own store, hosted by its first rank.
"""

import contextlib
import os
import socket
import stat
import time
from typing import Any

import paddle
import paddle.distributed as distributed
from paddle.base import core

TIMEOUT_S = 300
"""How long a rank waits for another one to come, or to send."""

_RETRY_S = 0.05
_CONNECT_S = 5


def own_host() -> str:
    """The address under which other ranks reach this one, from the launcher."""
    return distributed.ParallelEnv().current_endpoint.rsplit(":", 1)[0]


def wait_for_store() -> None:
    """Wait until rank 0 serves the store: Paddle's own client tries again only after 3 seconds.

    Raises:
        OSError: rank 0 was not there within `TIMEOUT_S`.
    """
    # The libuv server aborts its process when a client's connection is reset, as happens when ranks end.
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})
    if int(os.environ.get("PADDLE_TRAINER_ID", "0")) == 0:
        return
    address = _store_address()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            socket.create_connection(address, _CONNECT_S).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_S)


def _store_address() -> tuple[str, int]:
    """Host and port of the store, by the same precedence as in Paddle."""
    environment = os.environ
    if "MASTER_ADDR" in environment and "MASTER_PORT" in environment:
        return environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    first = environment.get("PADDLE_MASTER") or environment["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
    return split_address(first)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`."""
    host, port = text.rsplit(":", 1)
    return host, int(port)


def isolate_groups() -> None:
    """Give every gloo group that is created from now on a store of its own."""
    groups: Any = core.ProcessGroupGloo
    create = groups.create

    def create_isolated(store: Any, rank: int, size: int, group_id: int = 0) -> Any:
        if group_id != 0:  # group 0 is the first, and the default store is still empty
            store = _own_store(store, rank, group_id)
        _send_at_once()
        return create(store, rank, size, group_id)

    groups.create = create_isolated


def _own_store(common: Any, rank: int, group_id: int) -> Any:
    """A new store for one group; its address is passed on through the store of all ranks."""
    key = f"regatta/store/{group_id}"
    if rank == 0:
        host = own_host()
        with socket.socket() as holder:  # keeps the port from others until the store listens there
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("", 0))
            port = holder.getsockname()[1]
            store = core.TCPStore(host, port, True, 0, TIMEOUT_S)
        common.set(key, f"{host}:{port}")
        return store
    host, port = split_address(common.get(key).decode())
    return core.TCPStore(host, port, False, 0, TIMEOUT_S)


def _send_at_once() -> None:
    """Set TCP_NODELAY on the connections of this process.

    A store's client sends each request as several small writes. With Nagle's algorithm and delayed
    acknowledgements every one of them takes 40 ms, which is about a second for a group of four ranks.
    """
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile, or not TCP
            if stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                with socket.socket(fileno=os.dup(int(name))) as connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
