"""Publishes the checkpoints and the final model that a trainer announces."""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from store.artifacts import Artifacts, Manifest
from store.checkpoints import RESULT
from store.errors import ArtifactError
from worker.spec import Spec

COMPLETE_MARK = "trainer_state.json"
"""The trainer writes this file last; a checkpoint without it is not one."""

CHECKPOINT_DIRECTORY = re.compile(r"checkpoint-(\d+)")


class CannotPublish(Exception):  # noqa: N818 - a finding about a directory, which no retry changes
    """The announced directory is not fit to be kept; the message is for the user."""


def checkpoint_key(job_id: str, attempt: int, name: str) -> str:
    """Where a checkpoint lies among the artifacts. Attempts share no key: none can damage another's."""
    return f"jobs/{job_id}/checkpoints/{attempt}/{name}"


def publish(artifacts: Artifacts, spec: Spec, attempt: int, event: Mapping[str, Any]) -> dict[str, Any]:
    """Publish the directory of a "checkpoint" or "result" event; the event with "key" and "files" added.

    Raises:
        CannotPublish: the directory is gone, incomplete, outside the workspace or holds links.
        OSError: the artifacts cannot be written now.
    """
    name = RESULT if event["type"] == "result" else event["name"]
    directory = announced_directory(spec, name, event)
    key = checkpoint_key(spec.job_id, attempt, name)
    try:
        if name == RESULT:
            manifest = _publish_model(artifacts, directory, key)
        else:
            manifest = _publish_checkpoint(artifacts, directory, key)
    except FileNotFoundError:
        if (directory / COMPLETE_MARK).exists():
            raise
        raise CannotPublish(f"{name} was removed before it could be kept.") from None
    except ArtifactError as error:
        raise CannotPublish(f"{name} cannot be kept: {error}") from error
    return {**event, "key": key, "files": [entry.as_dict() for entry in manifest.files]}


def announced_directory(spec: Spec, name: str, event: Mapping[str, Any]) -> Path:
    """The directory that an event names. Raises: CannotPublish when it is gone, or outside the workspace."""
    directory = spec.files.inside(event["path"])
    if directory is None:
        raise CannotPublish(f"{name} was not kept: {event['path']} lies outside the job's workspace.")
    if not directory.is_dir():
        raise CannotPublish(f"{name} was removed before it could be kept.")
    return directory


def _publish_checkpoint(artifacts: Artifacts, directory: Path, key: str) -> Manifest:
    if not (directory / COMPLETE_MARK).is_file():
        raise CannotPublish(f"{directory.name} was not kept: it is incomplete, it has no {COMPLETE_MARK}.")
    manifest = artifacts.publish_directory(directory, key)
    if {entry.path for entry in manifest.files} != _files(directory):  # its removal had begun
        artifacts.delete_prefix(key)
        raise CannotPublish(f"{directory.name} was removed before it could be kept.")
    return manifest


def _publish_model(artifacts: Artifacts, directory: Path, key: str) -> Manifest:
    with model_alone(directory) as view:
        return artifacts.publish_directory(view, key)


@contextmanager
def model_alone(directory: Path) -> Iterator[Path]:
    """The final model without the checkpoints of its training and the hidden files that share its directory:
    a folder of links, for the time of the block.
    """
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=".result-") as folder:
        for entry in directory.iterdir():
            if entry.name.startswith(".") or (entry.is_dir() and CHECKPOINT_DIRECTORY.fullmatch(entry.name)):
                continue
            _link(entry, Path(folder) / entry.name)
        yield Path(folder)


def _link(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, copy_function=os.link, symlinks=True)
    else:
        os.link(source, target, follow_symlinks=False)


def _files(directory: Path) -> set[str]:
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()}
