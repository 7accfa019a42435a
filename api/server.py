"""Runs the application under uvicorn, with open event streams ended at once on shutdown."""

import socket

import uvicorn
from fastapi import FastAPI

from api.app import create_app
from store.settings import Settings, get_settings

SHUTDOWN_SECONDS = 10


class Server(uvicorn.Server):
    """uvicorn waits for open connections before the lifespan ends, so streams must be told first."""

    def __init__(self, app: FastAPI, host: str, port: int) -> None:
        config = uvicorn.Config(
            app,
            host=host,
            port=port,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        super().__init__(config)
        self.app = app

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.app.state.service.hub.close()
        await super().shutdown(sockets)


def run(settings: Settings | None = None, host: str | None = None, port: int | None = None) -> None:
    """Serves until SIGINT or SIGTERM; `host` and `port` default to the settings' (loopback)."""
    settings = settings or get_settings()
    app = create_app(settings)
    port = settings.api_port if port is None else port
    Server(app, host or settings.api_host, port).run()
