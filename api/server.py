"""Runs the application under uvicorn, with open event streams ended at once on shutdown."""

import ipaddress
import socket

import uvicorn
from fastapi import FastAPI
from uvicorn.config import LOGGING_CONFIG

from api.app import create_app
from api.protocol import BoundedHttp
from store.logformat import configure_logging
from store.settings import Settings, get_settings

SHUTDOWN_SECONDS = 10


class Server(uvicorn.Server):
    """uvicorn waits for open connections before the lifespan ends, so streams must be told first."""

    def __init__(self, app: FastAPI, host: str, port: int, log_format: str = "text") -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            http=BoundedHttp,
            access_log=False,
            log_config=None if log_format == "json" else LOGGING_CONFIG,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self.app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.service.hub.close()
        await super().shutdown(sockets)


class UnsafeAddress(Exception):  # noqa: N818 - named after what it tells the operator
    """Without keys, everybody who reaches the server may do everything: it must be this machine alone."""


def check_address(settings: Settings, host: str) -> None:
    """Refuse to listen on more than loopback without keys. Raises: UnsafeAddress."""
    if not settings.api_keys_required and not is_loopback(host):
        raise UnsafeAddress(
            f"api_host: got {host!r}, which other machines can reach, but no keys are required. "
            "Set REGATTA_API_KEYS_REQUIRED=true (`regatta keys create NAME --database` makes the first key), "
            "or listen on 127.0.0.1."
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address, or every address that the name stands for."""
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    return bool(host) and all(address.is_loopback for address in addresses)


def run(settings: Settings | None = None, host: str | None = None, port: int | None = None) -> None:
    """Serves until SIGINT or SIGTERM; `host` and `port` default to the settings' (loopback).

    Raises: UnsafeAddress when other machines could reach a server without keys.
    """
    settings = settings or get_settings()
    host = host or settings.api_host
    check_address(settings, host)
    app = create_app(settings)
    port = settings.api_port if port is None else port
    if settings.log_format == "json":
        configure_logging(settings.log_format)
    Server(app, host, port, settings.log_format).run()
