"""`AsyncRegatta`: `Regatta` for asyncio. Every method is that of `regatta_client.sync`."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pydantic import BaseModel

from regatta_client import calls
from regatta_client.calls import Call, CloneFields, History, JobFields, JobFilters, RetryFields
from regatta_client.connection import AsyncConnection, path_of
from regatta_client.downloads import Part, new_folder
from regatta_client.errors import ApiError, JobDidNotSucceedError, ServerAwayError, TookTooLongError
from regatta_client.following import PATIENCE_S, TERMINAL, Patience, follow_async
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


class AsyncRegatta:
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
        self.connection = AsyncConnection(url, api_key, timeout_s=timeout_s, retries=retries)
        self.jobs = AsyncJobs(self.connection, patience_s)
        self.checkpoints = AsyncCheckpoints(self.connection, patience_s)
        self.datasets = AsyncDatasets(self.connection)
        self.pipelines = AsyncPipelines(self.connection)
        self.hosts = AsyncHosts(self.connection)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Resource:
    def __init__(self, connection: AsyncConnection, patience_s: float = PATIENCE_S) -> None:
        self._connection = connection
        self._patience_s = patience_s

    async def _run(self, call: Call[T]) -> T:
        return call.read(await self._connection.request(call.method, call.path, **call.options))

    async def _items(
        self, path: str, model: type[M], params: Mapping[str, Any] | None = None
    ) -> AsyncIterator[M]:
        async for item in self._connection.items(path, params):
            yield model.model_validate(item)


class AsyncJobs(_Resource):
    """Jobs: made, shown, followed, stopped, repeated."""

    async def submit(
        self,
        task: str,
        config: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        **fields: Unpack[JobFields],
    ) -> Job:
        """Make a job. However often the call is repeated, it makes one."""
        return await self._run(calls.submit(task, config, fields, idempotency_key))

    async def validate(
        self, task: str, config: Mapping[str, Any], *, preview: int = 0, **fields: Unpack[JobFields]
    ) -> Validation:
        """Everything that `submit` checks, and what the job would take; nothing is stored."""
        return await self._run(calls.validate(task, config, fields, preview))

    async def get(self, job_id: str) -> Job:
        """One job as it is now."""
        return await self._run(calls.get_job(job_id))

    def list(self, **filters: Unpack[JobFilters]) -> AsyncIterator[Job]:
        """Jobs that match all filters, newest first."""
        return self._items("/jobs", Job, calls.job_filters(filters))

    async def cancel(self, job_id: str) -> Job:
        """Stop a job; one that runs saves a checkpoint first."""
        return await self._run(calls.cancel_job(job_id))

    async def retry(self, job_id: str, **changes: Unpack[RetryFields]) -> Job:
        """Run a failed or cancelled job again, from its last checkpoint."""
        return await self._run(calls.retry_job(job_id, changes))

    async def clone(
        self, job_id: str, *, idempotency_key: str | None = None, **changes: Unpack[CloneFields]
    ) -> Job:
        """Make a job like another one."""
        return await self._run(calls.clone_job(job_id, changes, idempotency_key))

    async def delete(self, job_id: str) -> None:
        """Forget a job that has ended, and its artifacts."""
        await self._run(calls.delete_job(job_id))

    async def states(self, job_id: str, *, poll_s: float = 1.0) -> AsyncIterator[Job]:
        """The job again and again until it has ended, the last state too."""
        job = await self.get(job_id)
        patience = Patience(self._patience_s)
        while True:
            yield job
            if job.status in TERMINAL:
                return
            await asyncio.sleep(poll_s)
            while True:
                try:
                    job = await self.get(job_id)
                    break
                except (ServerAwayError, ApiError) as error:
                    await asyncio.sleep(patience.pause_s(error))
            patience.progress()

    async def wait(
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
        async for job in self.states(job_id, poll_s=poll_s):
            if job.status in TERMINAL:
                if must_succeed and job.status != "succeeded":
                    raise JobDidNotSucceedError(job)
                return job
            if timeout_s is not None and time.monotonic() - begin > timeout_s:
                raise TookTooLongError(job, timeout_s)
        raise AssertionError("states end with an ended job")

    def events(self, job_id: str, *, follow: bool = False) -> AsyncIterator[Event]:
        """What has happened to the job; with `follow` also what will, until it has ended."""
        return self._history(calls.EVENTS, job_id, follow)

    def metrics(self, job_id: str, *, kind: str | None = None, follow: bool = False) -> AsyncIterator[Metric]:
        """The job's numbers; `kind`: train or eval."""
        return self._history(calls.METRICS, job_id, follow, kind=kind)

    def logs(
        self, job_id: str, *, rank: int | None = None, tail: int | None = None, follow: bool = False
    ) -> AsyncIterator[LogLine]:
        """What the job's processes have written; each line once, over any number of connections."""
        return self._history(calls.LOGS, job_id, follow, rank=rank, tail=tail)

    async def _history(
        self, history: History[M], job_id: str, following: bool, **params: Any
    ) -> AsyncIterator[M]:
        if not following:
            async for item in self._items(history.path(job_id), history.model, params):
                yield item
            return
        await self.get(job_id)  # patience is for servers that go away, not for one that was never there
        async for event in follow_async(self._connection, history.path(job_id), params, self._patience_s):
            if (item := history.item(event)) is not None:
                yield item


class AsyncCheckpoints(_Resource):
    """Checkpoints and results of jobs."""

    def list(self, job_id: str) -> AsyncIterator[Checkpoint]:
        """The checkpoints that a job keeps, by step."""
        return self._items(path_of("jobs", job_id, "checkpoints"), Checkpoint)

    async def get(self, job_id: str, name: str | None = None) -> Checkpoint:
        """One checkpoint; None: the job's result."""
        return await self._run(calls.get_checkpoint(job_id, name))

    async def download(self, job_id: str, target: Path | str, name: str | None = None) -> Path:
        """Store a checkpoint (None: the result) in a new folder, which appears once all its files are there.

        Raises:
            FileExistsError: there is something at `target`.
            DamagedFileError: a file is not what the server has listed.
        """
        target = Path(target)
        checkpoint = await self.get(job_id, name)
        with new_folder(target) as folder:
            for file in checkpoint.files:
                await self._fetch(folder, file)
        return target

    async def _fetch(self, folder: Path, file: File) -> None:
        patience = Patience(self._patience_s)
        with closing(Part(folder, file)) as part:
            while not part.complete:
                try:
                    async with self._connection.stream(file.url, headers=part.headers()) as response:
                        part.begin(response)
                        async for data in response.aiter_bytes():
                            part.write(data)
                            patience.progress()
                    break
                except (ServerAwayError, ApiError) as error:
                    await asyncio.sleep(patience.pause_s(error))
            part.finish()


class AsyncDatasets(_Resource):
    """Data sets: uploaded once, referred to by jobs."""

    async def upload(
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
            return await self._run(calls.upload(found, handles, name, kind))

    async def get(self, dataset_id: str) -> Dataset:
        """One data set."""
        return await self._run(calls.get_dataset(dataset_id))

    def list(self, *, name: str | None = None, kind: str | None = None) -> AsyncIterator[Dataset]:
        """Data sets that match all filters, newest first."""
        return self._items("/datasets", Dataset, {"name": name, "kind": kind})

    async def delete(self, dataset_id: str) -> None:
        """Forget a data set that no job needs."""
        await self._run(calls.delete_dataset(dataset_id))


class AsyncPipelines(_Resource):
    """Jobs that use each other's results."""

    async def create(
        self,
        jobs: Sequence[Mapping[str, Any]],
        *,
        name: str | None = None,
        idempotency_key: str | None = None,
    ) -> Pipeline:
        """Make all jobs or none; each is the body of a job and its `id` in the pipeline."""
        return await self._run(calls.create_pipeline(jobs, name, idempotency_key))

    async def get(self, pipeline_id: str) -> Pipeline:
        """One pipeline and where its jobs stand."""
        return await self._run(calls.get_pipeline(pipeline_id))

    def list(self) -> AsyncIterator[Pipeline]:
        """Pipelines, newest first."""
        return self._items("/pipelines", Pipeline)

    async def cancel(self, pipeline_id: str) -> Pipeline:
        """Stop all its jobs."""
        return await self._run(calls.cancel_pipeline(pipeline_id))

    async def delete(self, pipeline_id: str) -> None:
        """Forget a pipeline that has ended, and its jobs."""
        await self._run(calls.delete_pipeline(pipeline_id))


class AsyncHosts(_Resource):
    """Hosts, and keeping jobs away from them, which wants a key with the scope `admin`."""

    def list(self) -> AsyncIterator[Host]:
        """All hosts that have ever registered, by name."""
        return self._items("/hosts", Host)

    async def cordon(self, name: str, reason: str = "") -> Host:
        """Give a host no new jobs until it is uncordoned; those that run there go on."""
        return await self._run(calls.host_call(name, "cordon", reason))

    async def drain(self, name: str, reason: str = "") -> Host:
        """Cordon a host, and let the jobs that run there stop with a checkpoint and go on elsewhere."""
        return await self._run(calls.host_call(name, "drain", reason))

    async def uncordon(self, name: str) -> Host:
        """Give a host jobs again, also one that was excluded because of what failed there."""
        return await self._run(calls.host_call(name, "uncordon"))
