"""What the endpoints work with: the parts of the service, opened once per process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

import anyio
import anyio.to_thread
from fastapi import Depends, Request

from api.feeds import Hub
from api.hints import Hints
from store.artifacts import Artifacts, artifacts_for
from store.database import Database
from store.logs import LogArchive, LogStream
from store.settings import Settings
from trainer.config.preflight import Roots

MOST_CHECKS = 4
"""Jobs that are checked at the same time."""
MOST_UPLOADS = 2
"""Pieces of uploaded data that are checked at the same time; more uploads take turns."""

T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    settings: Settings
    database: Database
    artifacts: Artifacts
    log_stream: LogStream
    log_archive: LogArchive
    roots: Roots
    hub: Hub
    hints: Hints
    checks: anyio.CapacityLimiter
    uploads: anyio.CapacityLimiter

    @classmethod
    def open(cls, settings: Settings) -> "Service":
        artifacts = artifacts_for(settings.artifacts_url)
        return cls(
            settings=settings,
            database=Database(settings.database_url),
            artifacts=artifacts,
            log_stream=LogStream(settings.broker_url),
            log_archive=LogArchive(artifacts),
            roots=Roots(settings.model_roots, settings.data_roots, hub=settings.allow_hub),
            hub=Hub(settings.stream_ping_s),
            hints=Hints(settings.broker_url),
            checks=anyio.CapacityLimiter(MOST_CHECKS),
            uploads=anyio.CapacityLimiter(MOST_UPLOADS),
        )

    async def check(self, work: Callable[[], T]) -> T:
        """Run in a thread what reads the models and data of a job, which may take minutes: a few at a time,
        so that the other calls find a thread and the processor.
        """
        return await anyio.to_thread.run_sync(work, limiter=self.checks)

    async def take_in(self, work: Callable[[], T]) -> T:
        """Run in a thread what checks and writes a piece of an upload."""
        return await anyio.to_thread.run_sync(work, limiter=self.uploads)

    def close(self) -> None:
        self.log_stream.close()
        self.database.dispose()


async def _service(request: Request) -> Service:
    return request.app.state.service


ServiceDep = Annotated[Service, Depends(_service)]
