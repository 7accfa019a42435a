"""How many tokens the records of a data set have for a model: counted in a process of its own, and kept.

The tokenizer and the chat template, which is a program of the user's, may use little time and memory there.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from api.access import require_checkpoint, require_job, require_result
from api.principal import Principal
from api.problems import ApiError, invalid, not_found
from api.service import Service
from store import datasets, tables
from store.artifacts import Artifacts
from trainer.config.preflight.hub import HubName, Part, cached_folder
from trainer.config.preflight.model import check_tokenizer
from trainer.config.preflight.paths import Finder
from trainer.config.problems import Problem
from trainer.config.values import show

TIMEOUT_S = 90
MOST_RECORDS = 20_000
MOST_BYTES = 16 << 20
"""Of more records every second, third … one is counted."""
LARGEST_FILE = 64 << 20
"""Bytes of a tokenizer file that is fetched from the artifacts."""
FIELD = ("query", "model")


def token_lengths(
    service: Service, principal: Principal, dataset: tables.Dataset, split: str, model: str, max_length: int
) -> dict[str, Any]:
    """What `trainer.token_lengths` counts of a split.

    Args:
        model: a folder or name of a model, or `job:<id>`, `job:<id>/<checkpoint>`.

    Raises:
        ApiError: 422 when the model's tokenizer is not here or cannot be used; 404 for an unknown job; 503
            when it was not counted in time.
    """
    with _tokenizer(service, principal, model) as folder:
        name = json.dumps([split, model, max_length, _fingerprint(folder)])
        known = dataset.statistics.get(name)
        if known is not None:
            return known
        counted = _count(service.artifacts, dataset, split, folder, max_length)
    with service.database.transaction() as session:
        datasets.keep_statistics(session, dataset.id, name, counted)
    return counted


@contextmanager
def _tokenizer(service: Service, principal: Principal, model: str) -> Iterator[Path]:
    """A folder with the tokenizer files."""
    if model.startswith("job:"):
        published = _published(service, principal, model)
        with tempfile.TemporaryDirectory(prefix="regatta-tokenizer-") as folder:
            _fetch(service.artifacts, published, Path(folder))
            yield _checked(Path(folder), Finder("model", (Path(folder),)), model)
        return
    finder = Finder("model", service.roots.models)
    name = HubName.parse(model)
    if name is not None and not finder.finds(model):
        folder = cached_folder(name, Part.TOKENIZER)
        if folder is None:
            msg = f"{name} is not on the server's machine"
            raise invalid([Problem(FIELD, msg, "Name a model that is, or count with regatta preview.")])
        yield folder
        return
    found = finder.folder("model", model)
    if isinstance(found, Problem):
        raise invalid([Problem(FIELD, found.msg, found.hint)])
    yield _checked(found, finder, model)


def _checked(folder: Path, finder: Finder, model: str) -> Path:
    problems = check_tokenizer(folder, finder)
    if problems:
        raise invalid([Problem(FIELD, each.msg.replace(str(folder), model), each.hint) for each in problems])
    return folder


def _published(service: Service, principal: Principal, model: str) -> tables.Checkpoint:
    job_id, _, checkpoint = model.removeprefix("job:").partition("/")
    with service.database.reading() as session:
        job = require_job(session, job_id)
    if not principal.sees(job.project):
        raise not_found("job", job_id, "/jobs")
    return require_checkpoint(service, job_id, checkpoint) if checkpoint else require_result(service, job_id)


def _fetch(artifacts: Artifacts, published: tables.Checkpoint, folder: Path) -> None:
    for file in published.files:
        if file["path"] not in Part.TOKENIZER.value:
            continue
        if file["bytes"] > LARGEST_FILE:
            msg = f"{file['path']} has {file['bytes']} bytes, expected at most {LARGEST_FILE}"
            raise invalid([Problem(FIELD, msg, "Name another model.")])
        with (folder / file["path"]).open("xb") as target:
            target.writelines(artifacts.open(f"{published.key}/{file['path']}"))


def _fingerprint(folder: Path) -> str:
    """Changes with the tokenizer files, however they were changed."""
    found = sha256()
    for name in Part.TOKENIZER.value:
        with suppress(FileNotFoundError):
            found.update(name.encode() + sha256((folder / name).read_bytes()).digest())
    return found.hexdigest()[:16]


def _count(
    artifacts: Artifacts, dataset: tables.Dataset, split: str, folder: Path, max_length: int
) -> dict[str, Any]:
    about = dataset.splits[split]
    every = max(-(-about["examples"] // MOST_RECORDS), -(-about["bytes"] // MOST_BYTES))
    command = [sys.executable, "-P", "-m", "trainer.token_lengths", str(folder), "--kind", dataset.kind]
    command += ["--every", str(every), "--max-length", str(max_length)]
    content = artifacts.open(f"{dataset.key}/{datasets.split_file(split)}")
    try:
        answer = json.loads(_output(command, content))
    except ValueError:
        detail = f"The tokens of {show(str(folder.name))} could not be counted in time; try again."
        raise ApiError("unavailable", detail) from None
    if problems := answer.get("problems"):
        raise invalid([Problem(FIELD, each["msg"], each["hint"]) for each in problems])
    return answer


def _output(command: list[str], content: Iterator[bytes]) -> bytes:
    """What a program prints that is given the content; less when it was not ready in time."""
    # what the service keeps in its own variables, such as passwords, is nothing for a template
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REGATTA_")}
    failures: list[Exception] = []
    read_end, write_end = os.pipe()
    with os.fdopen(read_end):
        process = subprocess.Popen(
            command, stdin=read_end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
    feeder = threading.Thread(target=_feed, args=(os.fdopen(write_end, "wb"), content, failures))
    feeder.start()
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        output = b""
    finally:
        process.kill()
        process.wait()
        feeder.join()
    if failures:
        raise failures[0]
    return output


def _feed(target: IO[bytes], content: Iterator[bytes], failures: list[Exception]) -> None:
    try:
        with suppress(BrokenPipeError), target:
            target.writelines(content)
    except Exception as error:  # of the artifacts; raised where the output is read
        failures.append(error)
