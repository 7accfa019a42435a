"""Attempts on two hosts: how these meet, number their lines, complete checkpoints and come to one end."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from sqlalchemy.orm import Session

from store.artifacts import FileEntry
from store.attempts import Node, claim, place, renew
from store.database import Database
from store.gangs import (
    READY,
    RECOVERED,
    add_part,
    announce_address,
    arrive,
    decide_start,
    forget_parts,
    last_block,
    number_lines,
)
from store.hosts import busy_devices
from store.jobs import existing_job, request_cancel
from store.reasons import Reason
from store.reports import Certainty, Outcome, finish, report
from store.states import Status
from store.tables import Job
from tests.store.given import TTL_S, host, queued_job

DONE = Outcome(Status.succeeded, Reason.completed, "done", 0)
CANCELLED = Outcome(Status.cancelled, Reason.user_cancelled)
CRASHED = Outcome(Status.failed, Reason.trainer_crashed, "broke", 1, log=("last words",))
DRAINED = Outcome(Status.failed, Reason.host_stopping, "drained", 0, certainty=Certainty.patient)
LEFT = Outcome(Status.failed, Reason.host_lost, "left alone", 1, certainty=Certainty.doubtful)


def gang(session: Session) -> Job:
    """A job that two hosts, a and b, have claimed."""
    for name in "ab":
        host(session, name)
    job = queued_job(session, nodes=2)
    assert place(session, job, [Node("a", (0,)), Node("b", (0,))])
    for name in "ab":
        assert claim(session, job.id, 1, name, name, ttl_s=TTL_S)
    return job


def ended(session: Session, outcomes: Iterable[tuple[str, Outcome]]) -> Job:
    """The job when hosts have reported these outcomes, in this order."""
    job = gang(session)
    for name, outcome in outcomes:
        finish(session, job.id, 1, name, outcome)
    return existing_job(session, job.id)


def test_hosts_see_how_far_all_are_and_what_the_first_has_decided(database: Database) -> None:
    with database.transaction() as session:
        job = gang(session)
        meeting = arrive(session, job.id, 1, "b", RECOVERED)
        assert meeting is not None
        assert (meeting.stages, meeting.decided, meeting.address) == ((0, RECOVERED), False, None)
        assert not decide_start(session, job.id, 1, "b", "checkpoint-1")
        assert decide_start(session, job.id, 1, "a", None)
        assert decide_start(session, job.id, 1, "a", "checkpoint-9")  # asked again: the first answer counts
        assert announce_address(session, job.id, 1, "a", "10.0.0.1:4000")
        arrive(session, job.id, 1, "a", READY)
        meeting = arrive(session, job.id, 1, "b", READY)
        assert meeting is not None
        assert (meeting.decided, meeting.checkpoint, meeting.address) == (True, None, "10.0.0.1:4000")
        assert meeting.all_are(READY)
        assert arrive(session, job.id, 1, "somebody else", READY) is None


def test_lines_of_all_hosts_get_numbers_without_gap_and_the_same_ones_when_asked_again(
    database: Database,
) -> None:
    with database.transaction() as session:
        job = gang(session)
        given = [number_lines(session, job.id, 1, rank, first, 3) for rank, first in [(0, 1), (1, 1), (0, 4)]]
        assert [block.number for block in given] == [1, 4, 7]
        assert number_lines(session, job.id, 1, 1, 1, 99) == given[1]
        assert last_block(session, job.id, 1, 0) == given[2]
        with pytest.raises(ValueError, match="line 9 of host 1 cannot be numbered: line 4 comes first"):
            number_lines(session, job.id, 1, 1, 9, 1)


def test_a_checkpoint_is_complete_when_every_host_has_its_files_there(database: Database) -> None:
    parts = [(FileEntry("model", 3, "x"),), (FileEntry("extra", 4, "y"),)]
    with database.transaction() as session:
        job = gang(session)
        for _ in range(2):
            assert add_part(session, job.id, 1, "checkpoint-1", 1, parts[1]) is None
        assert add_part(session, job.id, 1, "checkpoint-2", 0, ()) is None
        whole = add_part(session, job.id, 1, "checkpoint-1", 0, parts[0])
        assert whole is not None
        assert whole.files == (*parts[1], *parts[0])
        assert forget_parts(session, job.id, 1, "checkpoint-1")
        assert not forget_parts(session, job.id, 1, "checkpoint-1")


def test_each_host_has_an_event_file_of_its_own(database: Database) -> None:
    warning = {"type": "warning", "t": 1.0, "msg": "careful"}
    with database.transaction() as session:
        job = gang(session)
        assert report(session, job.id, 1, "a", [warning], 50, start=0)
        assert report(session, job.id, 1, "b", [warning], 70, start=0, rank=1)
        assert report(session, job.id, 1, "b", [warning], 90, start=70, rank=1)


@pytest.mark.parametrize(
    ("outcomes", "status", "message"),
    [
        ([("a", DONE)], "starting", ""),
        ([("a", DONE), ("b", DONE)], "succeeded", "done"),
        ([("b", CRASHED)], "failed", "broke"),
        ([("a", LEFT)], "starting", ""),
        ([("a", LEFT), ("b", CRASHED)], "failed", "broke"),
        ([("a", LEFT), ("b", replace(CRASHED, certainty=Certainty.patient))], "failed", "broke"),
        ([("a", LEFT), ("b", LEFT)], "queued", "left alone"),
        ([("a", LEFT), ("b", DRAINED)], "queued", "drained"),
        ([("a", DRAINED)], "starting", ""),
        ([("b", DONE), ("a", CRASHED)], "failed", "broke"),
    ],
)
def test_the_first_cause_is_the_outcome_once_it_is_known(
    database: Database, outcomes: list[tuple[str, Outcome]], status: str, message: str
) -> None:
    with database.transaction() as session:
        job = ended(session, outcomes)
        assert (job.status, job.message) == (status, message)
        assert (job.evidence or {}).get("log", []) == (["last words"] if message == "broke" else [])
        for name, outcome in outcomes:  # nobody knows whether his report was heard
            assert finish(session, job.id, 1, name, outcome)


def test_a_host_that_is_done_lets_go_of_its_devices_and_the_others_hear_of_a_failure(
    database: Database,
) -> None:
    with database.transaction() as session:
        job = ended(session, [("a", LEFT)])
        assert busy_devices(session) == {"b": {0}}
        assert renew(session, job.id, 1, "b", ttl_s=TTL_S).deserted
        finish(session, job.id, 1, "b", LEFT)
    with database.transaction() as session:
        job = ended(session, [("a", DONE)])
        assert not renew(session, job.id, 1, "b", ttl_s=TTL_S).deserted


def test_a_cancelled_job_is_cancelled_when_all_hosts_have_stopped(database: Database) -> None:
    with database.transaction() as session:
        job = gang(session)
        request_cancel(session, job.id)
        finish(session, job.id, 1, "b", CANCELLED)
        assert existing_job(session, job.id).status == "stopping"
        finish(session, job.id, 1, "a", CANCELLED)
        assert existing_job(session, job.id).status == "cancelled"
