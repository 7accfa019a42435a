"""An attempt whose runner dies while its worker lives ends at once, with all that it had come to."""

import threading
from typing import Any

from store.checkpoints import RESULT, get_checkpoint
from store.states import Status
from tests.worker.bench import Bench, is_alive
from tests.worker.waiting import wait_until


def begin(bench: Bench, config: dict[str, Any]) -> tuple[str, threading.Thread]:
    """A job whose trainer waits behind its first step, and the worker's thread that waits for its runner."""
    job_id = bench.submit(config | {"wait_at": 1})
    worker = threading.Thread(target=bench.launch, args=(job_id, bench.place(job_id)), daemon=True)
    worker.start()
    bench.wait(job_id, lambda job: job.progress.get("step", 0) == 1)
    return job_id, worker


def test_its_trainer_is_ended_and_the_job_tried_again(bench: Bench) -> None:
    job_id, worker = begin(bench, {"steps": 5, "save_steps": 1, "children": 2})
    pids = bench.pids(job_id)
    bench.runner(job_id).kill()
    worker.join(60)
    job = bench.job(job_id)
    assert (job.status, job.reason, job.attempt) == (Status.queued, "trainer_killed", 2), bench.story(job_id)
    assert "The runner of the job, which watches its trainer, was killed by SIGKILL" in job.message
    assert not any(is_alive(pid) for pid in pids)
    assert bench.allocations() == []
    assert [line.line for line in bench.archived(job_id)] == ["starting at step 0", "step 1 line 0"]


def test_a_result_that_the_trainer_had_come_to_makes_the_job_succeed(bench: Bench) -> None:
    job_id, worker = begin(bench, {"steps": 20})
    runner = bench.runner(job_id)
    runner.suspend()
    (bench.workspace(job_id).path / "go-on").touch()
    wait_until(lambda: not is_alive(bench.pids(job_id)[0]))
    runner.kill()
    worker.join(60)
    job = bench.job(job_id)
    assert (job.status, job.reason, job.attempt) == (Status.succeeded, "completed", 1), bench.story(job_id)
    assert bench.metric_steps(job_id) == list(range(1, 21))
    assert bench.allocations() == []
    with bench.database.reading() as session:
        assert get_checkpoint(session, job_id, RESULT) is not None
