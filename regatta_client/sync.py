"""`Regatta`: a server, call by call."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pydantic import BaseModel

from regatta_client import calls
from regatta_client.calls import Call, CloneFields, History, JobFields, JobFilters, RetryFields
from regatta_client.connection import Connection, path_of
from regatta_client.downloads import Part, new_folder
from regatta_client.errors import ApiError, JobDidNotSucceedError, ServerAwayError, TookTooLongError
from regatta_client.following import PATIENCE_S, TERMINAL, Patience, follow, states
from regatta_client.models import (
    Checkpoint,
    Dataset,
    Event,
    File,
    Host,
    Job,
    LogLine,
    Metric,
    Pipeline,
    Validation,
)

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Regatta:
    """A Regatta server.

    Every call raises `ServerAwayError` when nothing answers, and an `ApiError` for a refusal: `InvalidError`
    with all problems, `NotFoundError`, `ConflictError` and so on.

    Args:
        url: default: REGATTA_URL, else the address `regatta up` uses.
        api_key: default: REGATTA_API_KEY.
        timeout_s: longest silence of an answer.
        retries: how often a call is repeated that may well succeed then; only where that is safe.
        patience_s: how long what follows a job lives through a server that is away.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        retries: int = 2,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.connection = Connection(url, api_key, timeout_s=timeout_s, retries=retries)
        self.jobs = Jobs(self.connection, patience_s)
        self.checkpoints = Checkpoints(self.connection, patience_s)
        self.datasets = Datasets(self.connection)
        self.pipelines = Pipelines(self.connection)
        self.hosts = Hosts(self.connection)

    def close(self) -> None:
        """Let go of the connections."""
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Resource:
    def __init__(self, connection: Connection, patience_s: float = PATIENCE_S) -> None:
        self._connection = connection
        self._patience_s = patience_s

    def _run(self, call: Call[T]) -> T:
        return call.read(self._connection.request(call.method, call.path, **call.options))

    def _items(self, path: str, model: type[M], params: Mapping[str, Any] | None = None) -> Iterator[M]:
        return (model.model_validate(item) for item in self._connection.items(path, params))


class Jobs(_Resource):
    """Jobs: made, shown, followed, stopped, repeated."""

    def submit(
        self,
        task: str,
        config: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Make a job. However often the call is repeated, it makes one."""
        return self._run(calls.submit(task, config, fields, idempotency_key))

    def validate(
        self, task: str, config: Mapping[str, Any], *, preview: int = 0, **fields: Unpack[JobFields]
    ) -> Validation:
        """Everything that `submit` checks, and what the job would take; nothing is stored."""
        return self._run(calls.validate(task, config, fields, preview))

    def get(self, job_id: str) -> Job:
        """One job as it is now."""
        return self._run(calls.get_job(job_id))

    def list(self, **filters: Unpack[JobFilters]) -> Iterator[Job]:
        """Jobs that match all filters, newest first."""
        return self._items("/jobs", Job, calls.job_filters(filters))

    def cancel(self, job_id: str) -> Job:
        """Stop a job; one that runs saves a checkpoint first."""
        return self._run(calls.cancel_job(job_id))

    def retry(self, job_id: str, **changes: Unpack[RetryFields]) -> Job:
        """Run a failed or cancelled job again, from its last checkpoint."""
        return self._run(calls.retry_job(job_id, changes))

    def clone(
        self, job_id: str, *, idempotency_key: str | None = None, **changes: Unpack[CloneFields]
    ) -> Job:
        """Make a job like another one."""
        return self._run(calls.clone_job(job_id, changes, idempotency_key))

    def delete(self, job_id: str) -> None:
        """Forget a job that has ended, and its artifacts."""
        self._run(calls.delete_job(job_id))

    def states(self, job_id: str, *, poll_s: float = 1.0) -> Iterator[Job]:
        """The job again and again until it has ended, the last state too."""
        call = calls.get_job(job_id)
        get = partial(self._connection.request, call.method, call.path)
        return map(call.read, states(get, poll_s, self._patience_s))

    def wait(
        self,
        job_id: str,
        *,
        timeout_s: float | None = None,
        poll_s: float = 1.0,
        must_succeed: bool = True,
    ) -> Job:
        """The job once it has ended.

        Raises:
            JobDidNotSucceedError: it has failed or was cancelled, unless that is allowed.
            TookTooLongError: it has not ended within `timeout_s`.
        """
        begin = time.monotonic()
        for job in self.states(job_id, poll_s=poll_s):
            if job.status in TERMINAL:
                if must_succeed and job.status != "succeeded":
                    raise JobDidNotSucceedError(job)
                return job
            if timeout_s is not None and time.monotonic() - begin > timeout_s:
                raise TookTooLongError(job, timeout_s)
        raise AssertionError("states end with an ended job")

    def events(self, job_id: str, *, follow: bool = False) -> Iterator[Event]:
        """What has happened to the job; with `follow` also what will, until it has ended."""
        return self._history(calls.EVENTS, job_id, follow)

    def metrics(self, job_id: str, *, kind: str | None = None, follow: bool = False) -> Iterator[Metric]:
        """The job's numbers; `kind`: train or eval."""
        return self._history(calls.METRICS, job_id, follow, kind=kind)

    def logs(
        self, job_id: str, *, rank: int | None = None, tail: int | None = None, follow: bool = False
    ) -> Iterator[LogLine]:
        """What the job's processes have written; each line once, over any number of connections."""
        return self._history(calls.LOGS, job_id, follow, rank=rank, tail=tail)

    def _history(self, history: History[M], job_id: str, following: bool, **params: Any) -> Iterator[M]:
        if not following:
            yield from self._items(history.path(job_id), history.model, params)
            return
        self.get(job_id)  # patience is for servers that go away, not for one that was never there
        for event in follow(self._connection, history.path(job_id), params, self._patience_s):
            if (item := history.item(event)) is not None:
                yield item


class Checkpoints(_Resource):
    """Checkpoints and results of jobs."""

    def list(self, job_id: str) -> Iterator[Checkpoint]:
        """The checkpoints that a job keeps, by step."""
        return self._items(path_of("jobs", job_id, "checkpoints"), Checkpoint)

    def get(self, job_id: str, name: str | None = None) -> Checkpoint:
        """One checkpoint; None: the job's result."""
        return self._run(calls.get_checkpoint(job_id, name))

    def download(self, job_id: str, target: Path | str, name: str | None = None) -> Path:
        """Store a checkpoint (None: the result) in a new folder, which appears once all its files are there.

        Raises:
            FileExistsError: there is something at `target`.
            DamagedFileError: a file is not what the server has listed.
        """
        target = Path(target)
        checkpoint = self.get(job_id, name)
        with new_folder(target) as folder:
            for file in checkpoint.files:
                self._fetch(folder, file)
        return target

    def _fetch(self, folder: Path, file: File) -> None:
        patience = Patience(self._patience_s)
        with closing(Part(folder, file)) as part:
            while not part.complete:
                try:
                    with self._connection.stream(file.url, headers=part.headers()) as response:
                        part.begin(response)
                        for data in response.iter_bytes():
                            part.write(data)
                            patience.progress()
                    break
                except (ServerAwayError, ApiError) as error:
                    time.sleep(patience.pause_s(error))
            part.finish()


class Datasets(_Resource):
    """Data sets: uploaded once, referred to by jobs."""

    def upload(
        self,
        files: Path | str | Mapping[str, Path | str],
        *,
        name: str | None = None,
        kind: str | None = None,
    ) -> Dataset:
        """Store JSON lines: a file to train on, or files by split (train, dev, quant).

        Its `reference` is what a config says to use it.
        """
        found = calls.split_files(files)
        with ExitStack() as stack:
            handles = [stack.enter_context(path.open("rb")) for _, path in found]
            return self._run(calls.upload(found, handles, name, kind))

    def get(self, dataset_id: str) -> Dataset:
        """One data set."""
        return self._run(calls.get_dataset(dataset_id))

    def list(self, *, name: str | None = None, kind: str | None = None) -> Iterator[Dataset]:
        """Data sets that match all filters, newest first."""
        return self._items("/datasets", Dataset, {"name": name, "kind": kind})

    def delete(self, dataset_id: str) -> None:
        """Forget a data set that no job needs."""
        self._run(calls.delete_dataset(dataset_id))


class Pipelines(_Resource):
    """Jobs that use each other's results."""

    def create(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        idempotency_key: str | None = None,
    ) -> Pipeline:
        """Make all jobs or none; each is the body of a job and its `id` in the pipeline."""
        return self._run(calls.create_pipeline(jobs, name, idempotency_key))

    def get(self, pipeline_id: str) -> Pipeline:
        """One pipeline and where its jobs stand."""
        return self._run(calls.get_pipeline(pipeline_id))

    def list(self) -> Iterator[Pipeline]:
        """Pipelines, newest first."""
        return self._items("/pipelines", Pipeline)

    def cancel(self, pipeline_id: str) -> Pipeline:
        """Stop all its jobs."""
        return self._run(calls.cancel_pipeline(pipeline_id))

    def delete(self, pipeline_id: str) -> None:
        """Forget a pipeline that has ended, and its jobs."""
        self._run(calls.delete_pipeline(pipeline_id))


class Hosts(_Resource):
    """Hosts, and keeping jobs away from them, which wants a key with the scope `admin`."""

    def list(self) -> Iterator[Host]:
        """All hosts that have ever registered, by name."""
        return self._items("/hosts", Host)

    def cordon(self, name: str, reason: str = "") -> Host:
        """Give a host no new jobs until it is uncordoned; those that run there go on."""
        return self._run(calls.host_call(name, "cordon", reason))

    def drain(self, name: str, reason: str = "") -> Host:
        """Cordon a host, and let the jobs that run there stop with a checkpoint and go on elsewhere."""
        return self._run(calls.host_call(name, "drain", reason))

    def uncordon(self, name: str) -> Host:
        """Give a host jobs again, also one that was excluded because of what failed there."""
        return self._run(calls.host_call(name, "uncordon"))
