"""What a runner reports: each event counts once, each attempt has one outcome."""

from typing import Any

import pytest
from sqlalchemy import select, update

from store.attempts import Node, claim, events_offset, place
from store.checkpoints import RESULT, get_checkpoint, list_checkpoints
from store.database import Database
from store.errors import OffsetConflict
from store.events import list_events
from store.hosts import busy_devices
from store.jobs import existing_job, request_cancel
from store.metrics import list_metrics
from store.reasons import INTERRUPTIONS, Reason
from store.reports import Outcome, finish, report
from store.states import Status, transition
from store.tables import Attempt, Job
from tests.store.given import HOST, OWNER, TTL_S, claimed_job, host, queued_job

DONE = Outcome(Status.succeeded, Reason.completed, exit_code=0)
CRASHED = Outcome(Status.failed, Reason.trainer_crashed, "it crashed", exit_code=1)


def progress(step: int, **values: Any) -> dict[str, Any]:
    return {"t": 1.0, "type": "progress", "step": step, **values}


def metric(step: int, **values: Any) -> dict[str, Any]:
    return {"t": float(step), "type": "metric", "step": step, **values}


def checkpoint(name: str, step: int, **values: Any) -> dict[str, Any]:
    files = [{"path": "model.safetensors", "bytes": 3, "sha256": "c" * 64}]
    return {
        "t": 1.0,
        "type": "checkpoint",
        "name": name,
        "step": step,
        "key": f"k/{name}",
        "files": files,
    } | values


def test_a_report_stores_metrics_progress_warnings_and_checkpoints(database: Database) -> None:
    events = [
        progress(0, total_steps=3, loss=None),
        {"t": 2.0, "type": "warning", "msg": "true runs as fp32", "hint": "set bf16", "loc": ["fp16"]},
        metric(1, loss=2.0, learning_rate=1e-4),
        {"t": 3.0, "type": "eval", "step": 1, "eval_loss": 1.5},
        checkpoint("checkpoint-1", 1, metrics={"eval_loss": 1.5}, best=True),
        {**checkpoint(RESULT, 3), "type": "result", "metrics": {"train_loss": 1.0}, "stopped": False},
    ]
    with database.transaction() as session:
        job, _ = claimed_job(session)
        assert report(session, job.id, 1, OWNER, events, 500, start=0)
    with database.reading() as session:
        job = existing_job(session, job.id)
        assert job.progress == {"step": 0, "total_steps": 3, "loss": None}
        assert job.started_at is not None
        train, evaluation = list_metrics(session, job.id)
        assert (train.kind, train.step, train.time) == ("train", 1, 1.0)
        assert train.values == {"loss": 2.0, "learning_rate": 1e-4}
        assert (evaluation.kind, evaluation.values) == ("eval", {"eval_loss": 1.5})
        told = [(event.type, event.message) for event in list_events(session, job.id)][2:]
        assert told == [
            ("status", ""),
            ("warning", "fp16: true runs as fp32"),
            ("checkpoint", "checkpoint-1 published"),
            ("result", "result published"),
        ]
        (saved,) = list_checkpoints(session, job.id)
        assert (saved.key, saved.bytes, saved.best) == ("k/checkpoint-1", 3, True)
        result = get_checkpoint(session, job.id, RESULT)
        assert result is not None
        assert result.metrics == {"train_loss": 1.0}


def test_the_first_progress_makes_a_starting_job_run_and_a_stopping_one_stays(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        assert report(session, job.id, 1, OWNER, [metric(1)], 10, start=0)
        assert existing_job(session, job.id).status == "starting"
        assert report(session, job.id, 1, OWNER, [progress(1)], 20, start=10)
        assert existing_job(session, job.id).status == "running"
        request_cancel(session, job.id)
        assert report(session, job.id, 1, OWNER, [progress(2)], 30, start=20)
        assert existing_job(session, job.id).status == "stopping"


def test_a_piece_that_comes_again_changes_nothing(database: Database) -> None:
    piece = [metric(1, loss=1.0), {"t": 1.0, "type": "warning", "msg": "w"}]
    with database.transaction() as session:
        job, _ = claimed_job(session)
        for _ in range(3):
            assert report(session, job.id, 1, OWNER, piece, 50, start=0)
        assert [m.step for m in list_metrics(session, job.id)] == [1]
        assert [e.type for e in list_events(session, job.id)].count("warning") == 1


def test_a_piece_that_does_not_continue_the_file_is_refused_with_the_place_to_go_on(
    database: Database,
) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        report(session, job.id, 1, OWNER, [metric(1)], 50, start=0)
        for start in (0, 40, 60):
            with pytest.raises(OffsetConflict) as caught:
                report(session, job.id, 1, OWNER, [metric(2)], 90, start=start)
            assert caught.value.expected == 50
        assert [m.step for m in list_metrics(session, job.id)] == [1]


def test_a_piece_that_fails_to_be_stored_leaves_nothing_behind(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)

    def report_unpublished() -> None:
        with database.transaction() as session:
            unpublished = {"t": 1.0, "type": "checkpoint", "name": "checkpoint-1", "step": 1}
            report(session, job.id, 1, OWNER, [metric(1), unpublished], 50, start=0)

    with pytest.raises(ValueError, match="checkpoint-1: publish the directory"):
        report_unpublished()
    with database.transaction() as session:
        assert list_metrics(session, job.id) == []
        assert report(session, job.id, 1, OWNER, [metric(1)], 20, start=0)


def test_a_new_attempt_reports_what_the_former_one_left_but_not_where_that_one_stood(
    database: Database,
) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        report(session, job.id, 1, OWNER, [progress(1), metric(1)], 50, start=0)
        finish(session, job.id, 1, OWNER, Outcome(Status.failed, Reason.host_stopping))
        assert place(session, existing_job(session, job.id), [Node(HOST, (0,))])
        assert claim(session, job.id, 2, HOST, "runner-2", ttl_s=TTL_S)
        assert events_offset(session, job.id, 1) == 50
        left = [progress(2), metric(2)]
        assert report(session, job.id, 2, "runner-2", left, 90, start=50, source=1)
        assert [(m.step, m.attempt) for m in list_metrics(session, job.id)] == [(1, 1), (2, 1)]
        assert existing_job(session, job.id).progress["step"] == 1
        assert existing_job(session, job.id).status == "starting"
        assert (events_offset(session, job.id, 1), events_offset(session, job.id, 2)) == (90, 0)
        assert events_offset(session, job.id, 3) == 0


def test_a_removed_checkpoint_is_forgotten(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        removed = {"t": 2.0, "type": "checkpoint_removed", "name": "checkpoint-1"}
        assert report(session, job.id, 1, OWNER, [checkpoint("checkpoint-1", 1), removed], 50, start=0)
        assert list_checkpoints(session, job.id) == []
        assert list_events(session, job.id)[-1].message == "checkpoint-1 removed"


@pytest.mark.parametrize("case", ["other owner", "other attempt", "requeued", "finished", "unknown job"])
def test_reports_and_outcomes_of_an_outdated_attempt_are_refused(database: Database, case: str) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        owner = "somebody else" if case == "other owner" else OWNER
        attempt = 2 if case == "other attempt" else 1
        job_id = "nope" if case == "unknown job" else job.id
        if case == "requeued":
            transition(session, job.id, Status.queued, reason=Reason.host_lost)
        if case == "finished":
            transition(session, job.id, Status.failed, reason=Reason.host_lost)
        before = existing_job(session, job.id).status
        assert not report(session, job_id, attempt, owner, [progress(1), metric(1)], 10, start=0)
        assert not finish(session, job_id, attempt, owner, DONE)
        assert list_metrics(session, job.id) == []
        assert existing_job(session, job.id).status == before


def test_success_ends_job_and_attempt_and_frees_the_devices(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        report(session, job.id, 1, OWNER, [progress(1)], 10, start=0)
        assert finish(session, job.id, 1, OWNER, DONE)
        ended = existing_job(session, job.id)
        assert (ended.status, ended.reason) == ("succeeded", "completed")
        attempt = session.get_one(Attempt, (job.id, 1), populate_existing=True)
        assert (attempt.exit_code, attempt.finished_by, attempt.reason) == (0, OWNER, "completed")
        assert busy_devices(session) == {}
        assert list_events(session, job.id)[-1].data == {"exit_code": 0}


def test_a_task_that_never_reports_progress_still_runs_before_it_succeeds(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        assert finish(session, job.id, 1, OWNER, DONE)
        states = [event.to_status for event in list_events(session, job.id)]
        assert states == ["queued", "starting", "running", "succeeded"]


def test_the_same_outcome_again_is_accepted_and_another_one_changes_nothing(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        assert finish(session, job.id, 1, OWNER, DONE)
        count = len(list_events(session, job.id))
        assert finish(session, job.id, 1, OWNER, DONE)
        assert finish(session, job.id, 1, OWNER, CRASHED)
        assert existing_job(session, job.id).status == "succeeded"
        assert len(list_events(session, job.id)) == count


def test_a_retryable_failure_is_tried_again_as_often_as_the_user_allows(database: Database) -> None:
    with database.transaction() as session:
        host(session)
        job = queued_job(session, max_retries=2)
        statuses = []
        for attempt in (1, 2, 3):
            assert place(session, existing_job(session, job.id), [Node(HOST, (0,))])
            assert claim(session, job.id, attempt, HOST, OWNER, ttl_s=TTL_S)
            assert finish(session, job.id, attempt, OWNER, CRASHED)
            statuses.append(existing_job(session, job.id).status)
        assert statuses == ["queued", "queued", "failed"]
        assert existing_job(session, job.id).message == "it crashed"


def test_a_failure_leaves_its_evidence_with_the_job_until_the_next_end(database: Database) -> None:
    killed = Outcome(
        Status.failed, Reason.trainer_killed, "It was killed.", 137, "SIGKILL", ("last", "words")
    )
    with database.transaction() as session:
        job, _ = claimed_job(session)
        assert finish(session, job.id, 1, OWNER, killed)
        again = existing_job(session, job.id)
        assert again.status == "queued"
        assert again.evidence == {
            "attempt": 1,
            "host": HOST,
            "message": "It was killed.",
            "exit_code": 137,
            "signal": "SIGKILL",
            "log": ["last", "words"],
        }
        assert place(session, again, [Node(HOST, (0,))])
        assert claim(session, job.id, 2, HOST, OWNER, ttl_s=TTL_S)
        assert existing_job(session, job.id).evidence
        assert finish(session, job.id, 2, OWNER, DONE)
        assert existing_job(session, job.id).evidence is None


def test_a_failure_that_a_retry_cannot_help_is_final(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session, max_retries=5)
        assert finish(session, job.id, 1, OWNER, Outcome(Status.failed, Reason.bad_data, exit_code=3))
        assert existing_job(session, job.id).status == "failed"


@pytest.mark.parametrize("reason", sorted(INTERRUPTIONS))
def test_an_interruption_costs_no_retry(database: Database, reason: Reason) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session, max_retries=0)
        assert finish(session, job.id, 1, OWNER, Outcome(Status.failed, reason))
        again = existing_job(session, job.id)
        assert (again.status, again.attempt, again.retries) == ("queued", 2, 0)


@pytest.mark.parametrize("outcome", [DONE, CRASHED, Outcome(Status.cancelled, Reason.user_cancelled)])
def test_a_job_that_was_asked_to_stop_ends_cancelled_whatever_its_trainer_did(
    database: Database, outcome: Outcome
) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session, max_retries=3)
        request_cancel(session, job.id)
        assert finish(session, job.id, 1, OWNER, outcome)
        ended = existing_job(session, job.id)
        assert (ended.status, ended.reason) == ("cancelled", "user_cancelled")


def test_a_job_whose_result_is_kept_has_succeeded_whatever_became_of_its_trainer(database: Database) -> None:
    result = {**checkpoint(RESULT, 3), "type": "result"}
    with database.transaction() as session:
        job, _ = claimed_job(session)
        report(session, job.id, 1, OWNER, [result], 100, start=0)
        assert finish(session, job.id, 1, OWNER, CRASHED)
    with database.reading() as session:
        job = existing_job(session, job.id)
        assert (job.status, job.reason, job.evidence) == ("succeeded", "completed", None)


def test_nobody_but_the_user_cancels_a_job(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        with pytest.raises(ValueError, match="was not asked to stop"):
            finish(session, job.id, 1, OWNER, Outcome(Status.cancelled, Reason.user_cancelled))


def test_an_outcome_is_an_end() -> None:
    with pytest.raises(ValueError, match="ends succeeded, failed or cancelled, not running"):
        Outcome(Status.running, Reason.started)


def gang_of_two(session) -> Job:
    host(session, "a")
    host(session, "b")
    job = queued_job(session, nodes=2)
    assert place(session, job, [Node("a", (0,)), Node("b", (0,))])
    for name in ("a", "b"):
        assert claim(session, job.id, 1, name, f"runner-{name}", ttl_s=TTL_S)
    return job


def test_a_gang_succeeds_with_its_first_host(database: Database) -> None:
    with database.transaction() as session:
        job = gang_of_two(session)
        for _ in range(2):
            assert finish(session, job.id, 1, "runner-b", DONE)
        assert existing_job(session, job.id).status == "starting"
        assert busy_devices(session) == {"a": {0}}
        assert finish(session, job.id, 1, "runner-a", DONE)
        assert existing_job(session, job.id).status == "succeeded"


def test_a_gang_fails_with_any_host_and_the_other_keeps_its_devices_until_it_lets_go(
    database: Database,
) -> None:
    with database.transaction() as session:
        job = gang_of_two(session)
        assert finish(session, job.id, 1, "runner-b", CRASHED)
        assert existing_job(session, job.id).status == "failed"
        assert busy_devices(session) == {"a": {0}}
        assert not finish(session, job.id, 1, "runner-a", DONE)


def test_a_new_checkpoint_forgives_infrastructure_faults(database: Database) -> None:
    with database.transaction() as session:
        job, _ = claimed_job(session)
        session.execute(update(Job).values(infrastructure_faults=2))
        report(session, job.id, 1, OWNER, [checkpoint("checkpoint-1", 1)], 10, start=0)
        assert session.execute(select(Job.infrastructure_faults)).scalar_one() == 0
