"""What a new attempt looks for before its trainer starts: what earlier ones left, where to go on from."""

import json
import logging
import shutil
from pathlib import Path

from store.artifacts import Artifacts
from store.checkpoints import list_checkpoints
from store.database import Database
from store.errors import ArtifactError
from worker.publishing import CHECKPOINT_DIRECTORY, COMPLETE_MARK
from worker.spec import Spec
from worker.strays import end_processes_of
from worker.workspace import AttemptFolder, write_atomically

log = logging.getLogger(__name__)


def begin_afresh(spec: Spec) -> None:
    """Remove from this host what a job that was started from scratch had saved before."""
    mark = spec.files.path / "attempts" / f"fresh-{spec.fresh_attempt}"
    output = spec.files.inside(spec.output_dir)
    if spec.fresh_attempt == 1 or mark.exists() or output is None:
        return
    for folder in spec.files.attempts():
        if folder.number < spec.fresh_attempt:
            end_processes_of(folder)
    if output.exists():
        shutil.rmtree(output)
    mark.touch()


def unfinished_attempts(spec: Spec) -> list[AttemptFolder]:
    """Earlier attempts of the job on this host that have not delivered everything, oldest first."""
    numbers = range(spec.fresh_attempt, spec.attempt)
    earlier = (folder for folder in spec.files.attempts() if folder.number in numbers)
    return [folder for folder in earlier if not folder.delivered.exists()]


def restore_checkpoint(spec: Spec, database: Database, artifacts: Artifacts) -> None:
    """Fetch the newest published checkpoint, unless the workspace has one that is as new."""
    output = spec.files.inside(spec.output_dir)
    if output is None:
        return
    with database.reading() as session:
        published = list_checkpoints(session, spec.job_id)
    newest_here = max((step for step, _ in _complete_checkpoints(output)), default=-1)
    for checkpoint in reversed(published):
        match = CHECKPOINT_DIRECTORY.fullmatch(checkpoint.name)
        if match is None or int(match[1]) <= newest_here:
            continue
        directory = output / checkpoint.name
        shutil.rmtree(directory, ignore_errors=True)  # incomplete, or it would count above
        try:
            artifacts.fetch_directory(checkpoint.key, directory)
        except (ArtifactError, FileNotFoundError) as error:
            log.warning("%s cannot be used: %s", checkpoint.name, error)
            continue
        log.info("%s was restored", checkpoint.name)
        return


def go_on_from_checkpoint(spec: Spec) -> None:
    """Let the config start from the newest checkpoint of the workspace, if there is one.

    What the user's config says about starting (`resume_from_checkpoint`, `overwrite_output_dir`) was meant
    for the first attempt; obeying it again would throw the job's own progress away.
    """
    output = spec.files.inside(spec.output_dir)
    if output is None or not _complete_checkpoints(output):
        return
    config = json.loads(spec.files.config.read_text())
    ours = {"resume_from_checkpoint": None, "overwrite_output_dir": False}
    changed = {name: value for name, value in ours.items() if config.get(name)}
    if changed:
        write_atomically(spec.files.config, json.dumps(config | changed, indent=1))


def _complete_checkpoints(output: Path) -> list[tuple[int, Path]]:
    if not output.is_dir():
        return []
    found = ((CHECKPOINT_DIRECTORY.fullmatch(entry.name), entry) for entry in output.iterdir())
    return [(int(match[1]), entry) for match, entry in found if match and (entry / COMPLETE_MARK).is_file()]
