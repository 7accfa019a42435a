"""Jobs that use the results of other jobs: they wait, fail and come back with them."""

import pytest
from sqlalchemy.orm import Session

from store.artifacts import FileEntry, Manifest
from store.checkpoints import RESULT, Published, record_checkpoint
from store.database import Database
from store.errors import Conflict
from store.inputs import Input, InputGone, input_states, waiting_for
from store.jobs import delete_job, existing_job, queued_jobs, request_cancel
from store.reasons import Reason
from store.reruns import Rerun, retry_job
from store.states import Status, transition
from store.tables import Job
from tests.store.given import queued_job

MODEL = "model_name_or_path"


def user(session: Session, *used: str, checkpoint: str | None = None) -> str:
    """A job that uses the results (or a checkpoint) of others."""
    inputs = tuple(Input(f"input_{n}", job_id=job_id, checkpoint=checkpoint) for n, job_id in enumerate(used))
    return queued_job(session, inputs=inputs).id


def publish(session: Session, job_id: str, name: str = RESULT) -> None:
    manifest = Manifest((FileEntry("config.json", 1, "0" * 64),))
    record_checkpoint(session, job_id, 1, Published(name, f"jobs/{job_id}/1/{name}", manifest, step=3))


def end(session: Session, job_id: str, to: Status, reason: Reason) -> None:
    """Run the queued job to this end."""
    for status, why in ((Status.starting, Reason.placed), (Status.running, Reason.started)):
        assert transition(session, job_id, status, reason=why)
    if to is Status.succeeded:
        publish(session, job_id)
    assert transition(session, job_id, to, reason=reason, message="because")


def fail(session: Session, job_id: str) -> None:
    end(session, job_id, Status.failed, Reason.out_of_memory)


def waiting(session: Session) -> set[str]:
    """The jobs that the scheduler may place now."""
    return {job.id for job in queued_jobs(session)}


def job(session: Session, job_id: str) -> Job:
    return existing_job(session, job_id)


def test_a_job_is_not_placed_before_what_it_uses_has_succeeded(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        assert waiting(session) == {first}
        assert waiting_for(input_states(session, [second])[second]) == f"waits for job {first} (queued)"
        end(session, first, Status.succeeded, Reason.completed)
        assert waiting(session) == {second}
        state = input_states(session, [second])[second][0]
        assert (state.ready, state.key, waiting_for([state])) == (True, f"jobs/{first}/1/{RESULT}", "")


def test_the_wait_names_the_step_of_a_running_job(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        transition(session, first, Status.starting, reason=Reason.placed)
        transition(session, first, Status.running, reason=Reason.started)
        job(session, first).progress = {"step": 12, "total_steps": 100}
        session.flush()
        states = input_states(session, [second])[second]
        assert waiting_for(states) == f"waits for job {first} (running, step 12 of 100)"


def test_all_that_waits_for_a_failed_job_fails_and_says_why(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        third = user(session, second)
        fail(session, first)
        for job_id in (second, third):
            assert (job(session, job_id).status, job(session, job_id).reason) == (
                "failed",
                "dependency_failed",
            )
        said = f"needs job {first}, which failed (out_of_memory): because"
        assert job(session, second).message == f"input_0 {said}"
        assert said in job(session, third).message
        evidence = job(session, second).evidence
        assert evidence is not None
        assert (evidence["job"], evidence["status"], evidence["reason"]) == (first, "failed", "out_of_memory")


def test_a_cancelled_job_fails_those_that_wait_for_it(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        request_cancel(session, first)
        assert "was cancelled" in job(session, second).message


def test_a_repeated_attempt_fails_nobody(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        transition(session, first, Status.starting, reason=Reason.placed)
        transition(session, first, Status.queued, reason=Reason.host_lost)
        assert job(session, second).status == "queued"


def test_a_retry_takes_along_what_has_failed_because_of_the_job(database: Database) -> None:
    with database.transaction() as session:
        first, other = queued_job(session).id, queued_job(session).id
        second = user(session, first)
        third = user(session, second, other)
        fail(session, first)
        with pytest.raises(Conflict, match="retry what it needs"):
            retry_job(session, second)
    with database.transaction() as session:
        retry_job(session, first)
        assert [job(session, each).status for each in (first, second, third)] == ["queued"] * 3
        assert waiting(session) == {first, other}


def test_a_job_of_two_failed_inputs_comes_back_with_the_second(database: Database) -> None:
    with database.transaction() as session:
        first, other = queued_job(session).id, queued_job(session).id
        both = user(session, first, other)
        fail(session, first)
        fail(session, other)
        retry_job(session, first)
        assert job(session, both).status == "failed"
        retry_job(session, other)
        assert job(session, both).status == "queued"


def test_a_job_that_was_cancelled_itself_is_not_taken_along(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        request_cancel(session, second)
        fail(session, first)
        retry_job(session, first)
        assert job(session, second).status == "cancelled"


def test_a_checkpoint_counts_once_its_job_has_ended_in_any_way(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first, checkpoint="checkpoint-3")
        without = user(session, first, checkpoint="checkpoint-4")
        publish(session, first, "checkpoint-3")
        assert waiting(session) == {first}
        fail(session, first)
        assert waiting(session) == {second}
        assert job(session, without).message == (
            f"input_0 needs checkpoint checkpoint-4 of job {first}, which failed without it"
        )


def test_what_unfinished_jobs_use_cannot_be_deleted(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        second = user(session, first)
        end(session, first, Status.succeeded, Reason.completed)
        with pytest.raises(
            Conflict, match=f"used by jobs that are not finished: {second}; cancel them first"
        ):
            delete_job(session, first)
        request_cancel(session, second)
        delete_job(session, first)
        with pytest.raises(Conflict, match=f"needs job {first}, which was deleted"):
            retry_job(session, second)


@pytest.mark.parametrize("project", ["default", "elsewhere"])
def test_a_new_job_cannot_use_what_is_not_there(database: Database, project: str) -> None:
    missing = "01980000-0000-7000-8000-000000000000"
    with pytest.raises(InputGone, match="there is no job") as error, database.transaction() as session:
        user(session, missing)
    assert error.value.argument == "input_0"


def test_a_new_job_cannot_use_a_failed_one(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        fail(session, first)
    with pytest.raises(InputGone, match="which failed"), database.transaction() as session:
        user(session, first)


def test_a_retry_from_scratch_forgets_what_was_saved(database: Database) -> None:
    with database.transaction() as session:
        first = queued_job(session).id
        publish(session, first, "checkpoint-3")
        fail(session, first)
        rerun = Rerun(values={"timeout_s": 60.0}, told={"timeout_s": [None, 60.0]}, from_scratch=True)
        again = retry_job(session, first, "me", rerun)
        assert (again.fresh_attempt, again.attempt, again.timeout_s, again.progress) == (2, 2, 60.0, {})
        fail(session, first)
        with pytest.raises(InputGone, match="without it"):
            user(session, first, checkpoint="checkpoint-3")
