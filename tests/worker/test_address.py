from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from store.settings import Settings
from worker.address import hold_port, own_address


def test_a_held_port_is_given_to_nobody_but_a_server_that_shares_it(settings: Settings) -> None:
    with hold_port(settings) as holder:
        port = holder.getsockname()[1]
        for _ in range(2):
            taken = settings.model_copy(update={"gang_ports": f"{port}:{port}"})
            with pytest.raises(OSError, match=rf"none of the ports {port}:{port} .* is free"):
                hold_port(taken)
        with HTTPServer(("127.0.0.1", port), BaseHTTPRequestHandler) as server:
            assert server.server_port == port


def test_of_a_range_the_next_port_is_held_when_one_is_taken(settings: Settings) -> None:
    with hold_port(settings) as first:
        port = first.getsockname()[1]
        wanted = settings.model_copy(update={"gang_ports": f"{port}:{min(port + 50, 65535)}"})
        with hold_port(wanted) as second:
            assert port < second.getsockname()[1] <= port + 50


def test_a_host_is_reached_as_the_settings_say_else_where_it_speaks_to_the_database(
    settings: Settings,
) -> None:
    assert own_address(settings.model_copy(update={"host_address": "localhost"})) == "127.0.0.1"
    remote = "postgresql+psycopg://user:secret@127.0.0.1/regatta"
    assert own_address(settings.model_copy(update={"database_url": remote})) == "127.0.0.1"
    assert own_address(settings) == "127.0.0.1"
