"""Publishes this host's files of what the hosts of an attempt save together."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from store.artifacts import FileEntry
from store.checkpoints import RESULT
from store.errors import ArtifactError
from store.gangs import add_part
from worker.publishing import (
    CHECKPOINT_DIRECTORY,
    CannotPublish,
    announced_directory,
    checkpoint_key,
    model_alone,
)
from worker.services import Services
from worker.spec import Spec


def publish_part(
    services: Services, spec: Spec, attempt: int, rank: int, event: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Publish this host's files of a "checkpoint" or "result" event.

    Returns: the event with "key" and "files" of all hosts added, when this host was the last; else None.
    Raises:
        CannotPublish: the directory is gone, outside the workspace, holds links; or the artifacts lack what
            another host has stored.
        OSError: the artifacts cannot be written now.
    """
    name = RESULT if event["type"] == "result" else event["name"]
    if name != RESULT and not CHECKPOINT_DIRECTORY.fullmatch(name):
        raise CannotPublish(f"{name!r} is no name of a checkpoint.")
    directory = announced_directory(spec, name, event)
    key = checkpoint_key(spec.job_id, attempt, name)
    try:
        files = _publish(services, directory, key, whole=name != RESULT)
        with services.database.transaction() as session:
            manifest = add_part(session, spec.job_id, attempt, name, rank, files)
        if manifest is None:
            return None
        services.artifacts.complete(key, manifest)
    except FileNotFoundError:
        if directory.is_dir():
            raise
        raise CannotPublish(f"{name} was removed before it could be kept.") from None
    except ArtifactError as error:
        raise CannotPublish(f"{name} cannot be kept: {error}") from error
    return {**event, "key": key, "files": [entry.as_dict() for entry in manifest.files]}


def _publish(services: Services, directory: Path, key: str, *, whole: bool) -> tuple[FileEntry, ...]:
    if whole:
        return services.artifacts.publish_part(directory, key)
    with model_alone(directory) as view:
        return services.artifacts.publish_part(view, key)
