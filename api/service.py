"""What the endpoints work with: the parts of the service, opened once per process."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.feeds import Hub
from api.hints import Hints
from store.artifacts import Artifacts, artifacts_for
from store.database import Database
from store.logs import LogArchive, LogStream
from store.settings import Settings
from trainer.config.preflight import Roots


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
        )

    def close(self) -> None:
        self.log_stream.close()
        self.database.dispose()


def _service(request: Request) -> Service:
    return request.app.state.service


ServiceDep = Annotated[Service, Depends(_service)]
