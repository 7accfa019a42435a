"""What an attempt reports to."""

from dataclasses import dataclass
from typing import Self

from store.artifacts import Artifacts, artifacts_for
from store.database import Database
from store.logs import LogArchive, LogStream
from store.settings import Settings


@dataclass(frozen=True)
class Services:
    """The connections of one attempt."""

    settings: Settings
    database: Database
    artifacts: Artifacts
    stream: LogStream
    archive: LogArchive

    @classmethod
    def connect(cls, settings: Settings, database: Database | None = None) -> Self:
        """Nothing is contacted yet: each may be away for now. A database that is there already is shared."""
        artifacts = artifacts_for(settings.artifacts_url)
        return cls(
            settings,
            database or Database(settings.database_url),
            artifacts,
            LogStream(settings.broker_url, entries=settings.log_stream_entries),
            LogArchive(artifacts),
        )
