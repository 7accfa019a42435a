"""Puts what a job uses of other jobs and of data sets into its workspace, below `inputs/`.

On the machine that has the artifacts a file of theirs and an input are one (a hard link), so that a model
takes no room twice. Trainers only read inputs.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from store.artifacts import Artifacts, LocalArtifacts, checked_key
from store.datasets import split_file
from store.errors import ArtifactError
from store.inputs import InputState
from trainer.config.data_files import PREFERENCE_FILES
from worker.spec import Spec
from worker.workspace import Workspace, write_atomically

log = logging.getLogger(__name__)

_SPLITS = {argument: split for split, argument in PREFERENCE_FILES.items()}


class MissingInput(Exception):  # noqa: N818 - a finding, which no retry changes
    """What the job uses is not among the artifacts; the message is for the user."""


def input_keys(inputs: Iterable[InputState]) -> dict[str, str]:
    """Where the artifacts have what a job uses, by the name of its folder below `inputs/`.

    Raises: MissingInput.
    """
    keys = {}
    for state in inputs:
        if state.key is None:
            raise MissingInput(f"{state.argument} needs {state.why()}.")
        keys[_name(state)] = state.key
    return keys


def with_inputs(config: Mapping[str, Any], inputs: Iterable[InputState], files: Workspace) -> dict[str, Any]:
    """The config with paths in the workspace in place of references."""
    changed = dict(config)
    for state in inputs:
        path = files.inputs / _name(state)
        if state.dataset_id and state.argument in _SPLITS:
            path /= split_file(_SPLITS[state.argument])
        changed[state.argument] = str(path)
    return changed


def fetch_inputs(spec: Spec, artifacts: Artifacts) -> None:
    """Fetch what is not there yet: an earlier attempt on this host may have fetched it.

    Raises:
        MissingInput: it was deleted, or is damaged.
        OSError: the artifacts do not answer, or this host has no room.
    """
    folder = spec.files.inputs
    known = _known(folder / "keys.json")
    for name, key in spec.inputs.items():
        target = folder / name
        if known.get(name) == key and target.is_dir():
            continue
        shutil.rmtree(target, ignore_errors=True)
        log.info("fetching %s", name)
        try:
            _fetch(artifacts, key, target)
        except FileNotFoundError as error:
            raise MissingInput(f"{name} is not among the artifacts any more.") from error
        except ArtifactError as error:
            raise MissingInput(f"{name} cannot be used: {error}.") from error
        known[name] = key
        write_atomically(folder / "keys.json", json.dumps(known))


def _fetch(artifacts: Artifacts, key: str, target: Path) -> None:
    if not isinstance(artifacts, LocalArtifacts):
        artifacts.fetch_directory(key, target)
        return
    manifest = artifacts.manifest(key)
    source = artifacts.root / checked_key(key)
    staging = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        for entry in manifest.files:
            copy = staging / entry.path
            copy.parent.mkdir(parents=True, exist_ok=True)
            _link_or_copy(source / entry.path, copy)
            if copy.stat().st_size != entry.bytes:
                raise ArtifactError(f"{entry.path} has not the size that it was stored with")
        staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # another device, or a file system without hard links
        shutil.copyfile(source, target, follow_symlinks=False)


def _known(path: Path) -> dict[str, str]:
    """What was fetched before, by name."""
    try:
        return json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}


def _name(state: InputState) -> str:
    if state.dataset_id:
        return f"dataset-{state.dataset_id}"
    return f"job-{state.job_id}" + (f"-{state.checkpoint}" if state.checkpoint else "")
