"""Every call of the client: what is asked for, and what the answer is."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypedDict, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from regatta_client.connection import path_of
from regatta_client.models import (
    Checkpoint,
    Dataset,
    Event,
    Host,
    Job,
    LogLine,
    Metric,
    Pipeline,
    Validation,
)
from regatta_client.sse import Event as StreamEvent

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
RESULT = "result"
SEND_TIMEOUT_S = 600.0
"""Longest silence while files are sent, checked and stored."""


class Webhook(TypedDict, total=False):
    """Where changes of status are announced."""

    url: str
    secret: str
    events: list[str]


class Devices(TypedDict, total=False):
    """What a job runs on."""

    nodes: int
    devices_per_node: int
    device: Literal["cpu", "gpu"]


class JobFields(TypedDict, total=False):
    """What may be said of a job beside its task and config; see POST /jobs."""

    name: str | None
    resources: Devices | None
    priority: int
    max_retries: int
    timeout_s: float | None
    labels: Mapping[str, str]
    secrets: Mapping[str, str]
    webhook: Webhook | None
    force: bool


class CloneFields(JobFields, total=False):
    """What is to be different in the new job."""

    config: Mapping[str, Any]


class RetryFields(TypedDict, total=False):
    """What is to be different this time; see POST /jobs/{id}/retry."""

    config: Mapping[str, Any]
    resources: Devices | None
    max_retries: int
    timeout_s: float | None
    from_scratch: bool
    force: bool


class JobFilters(TypedDict, total=False):
    """Which jobs are listed; all have to match."""

    status: str
    task: str
    name: str
    text: str
    """Part of a name, or how an id begins."""
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Call(Generic[T]):
    """One call: `options` are those of `Connection.request`."""

    method: str
    path: str
    model: type[T]
    options: Mapping[str, Any] = field(default_factory=dict)

    def read(self, answer: Any) -> T:
        """The answer as its type."""
        if issubclass(self.model, BaseModel):
            return self.model.model_validate(answer)
        return answer


def submit(task: str, config: Mapping[str, Any], fields: JobFields, key: str | None) -> Call[Job]:
    body = {"task": task, "config": dict(config), **fields}
    return Call("POST", "/jobs", Job, {"json": body, "headers": _key(key)})


def validate(task: str, config: Mapping[str, Any], fields: JobFields, preview: int) -> Call[Validation]:
    options = {"json": {"task": task, "config": dict(config), **fields}, "repeat": True}
    return Call("POST", "/jobs/validate", Validation, options | {"params": {"preview": preview or None}})


def get_job(job_id: str) -> Call[Job]:
    return Call("GET", path_of("jobs", job_id), Job)


def cancel_job(job_id: str) -> Call[Job]:
    return Call("POST", path_of("jobs", job_id, "cancel"), Job, {"repeat": True})


def retry_job(job_id: str, fields: RetryFields) -> Call[Job]:
    body = {"json": dict(fields)} if fields else {}
    return Call("POST", path_of("jobs", job_id, "retry"), Job, body)


def clone_job(job_id: str, fields: CloneFields, key: str | None) -> Call[Job]:
    return Call("POST", path_of("jobs", job_id, "clone"), Job, {"json": dict(fields), "headers": _key(key)})


def delete_job(job_id: str) -> Call[None]:
    return Call("DELETE", path_of("jobs", job_id), type(None))


def job_filters(filters: JobFilters) -> dict[str, Any]:
    """The parameters of GET /jobs."""
    labels = filters.get("labels", {})
    params: dict[str, Any] = {name: filters.get(name) for name in ("status", "task", "name", "text")}
    return params | {"label": [f"{key}:{value}" for key, value in labels.items()]}


def get_checkpoint(job_id: str, name: str | None) -> Call[Checkpoint]:
    place = (RESULT,) if name in (None, RESULT) else ("checkpoints", str(name))
    return Call("GET", path_of("jobs", job_id, *place), Checkpoint)


def upload(
    files: Sequence[tuple[str, Path]], handles: Sequence[Any], name: str | None, kind: str | None
) -> Call[Dataset]:
    """Of the files that are open as `handles`, each with its split."""
    parts = [
        (split, (path.name, handle, "application/x-ndjson"))
        for (split, path), handle in zip(files, handles, strict=True)
    ]
    options = {"files": parts, "params": {"name": name, "kind": kind}, "timeout_s": SEND_TIMEOUT_S}
    return Call("POST", "/datasets", Dataset, options)


def split_files(files: Path | str | Mapping[str, Path | str]) -> list[tuple[str, Path]]:
    """The files of an upload, each with its split; one alone is to be trained on."""
    if isinstance(files, Mapping):
        return [(split, Path(path)) for split, path in files.items()]
    return [("train", Path(files))]


def get_dataset(dataset_id: str) -> Call[Dataset]:
    return Call("GET", path_of("datasets", dataset_id), Dataset)


def delete_dataset(dataset_id: str) -> Call[None]:
    return Call("DELETE", path_of("datasets", dataset_id), type(None))


def create_pipeline(jobs: Sequence[Mapping[str, Any]], name: str | None, key: str | None) -> Call[Pipeline]:
    body = {"name": name, "jobs": [dict(job) for job in jobs]}
    return Call("POST", "/pipelines", Pipeline, {"json": body, "headers": _key(key)})


def get_pipeline(pipeline_id: str) -> Call[Pipeline]:
    return Call("GET", path_of("pipelines", pipeline_id), Pipeline)


def cancel_pipeline(pipeline_id: str) -> Call[Pipeline]:
    return Call("POST", path_of("pipelines", pipeline_id, "cancel"), Pipeline, {"repeat": True})


def delete_pipeline(pipeline_id: str) -> Call[None]:
    return Call("DELETE", path_of("pipelines", pipeline_id), type(None))


def host_call(name: str, what: Literal["cordon", "drain", "uncordon"], reason: str = "") -> Call[Host]:
    options = {"repeat": True, "params": {"reason": reason or None}}
    return Call("POST", path_of("hosts", name, what), Host, options)


@dataclass(frozen=True)
class History(Generic[M]):
    """A history of a job: a list, and a stream whose events are named `event`."""

    name: str
    event: str
    model: type[M]

    def path(self, job_id: str) -> str:
        return path_of("jobs", job_id, self.name)

    def item(self, event: StreamEvent) -> M | None:
        """What an event of the stream tells; None for those of the stream itself."""
        return self.model.model_validate(json.loads(event.data)) if event.type == self.event else None


EVENTS = History("events", "event", Event)
METRICS = History("metrics", "metric", Metric)
LOGS = History("logs", "log", LogLine)


def _key(key: str | None) -> dict[str, str]:
    """The header that makes it safe to send a call again."""
    return {"Idempotency-Key": key or str(uuid4())}
